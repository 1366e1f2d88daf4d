"""One vLLM engine for `bench.adaptive`, in its own process and vLLM's own interpreter.

Reads its configuration from the command line and one command a line from
standard input; answers one JSON line each on the file descriptor given. The
draft length is the controller's, or pinned to a fixed one for a command.
"""

import json
import os
import random
import sys
import time
import zlib
from collections import Counter
from typing import Any

_TEXT = """river stone lamp winter paper garden silver engine window bridge forest candle market
mountain letter harbour violin pepper cotton thunder island needle copper meadow"""


def prompts_of(kind: str, streams: int, seed: int) -> list[str]:
    """Prompts of one run: `copy` repeats itself, `free` does not."""
    chance = random.Random(seed)  # noqa: S311
    found = []
    for _ in range(streams):
        words = [chance.choice(_TEXT.split()) for _ in range(10)]
        line = " ".join(words)
        found.append(f"{line}. {line}. {line}." if kind == "copy" else f"Tell me about {line}.")
    return found


def _engine(told: dict[str, Any], clock: Any) -> tuple[Any, Any]:
    from vllm import LLM

    options: dict[str, Any] = dict(told["options"])
    holder: dict[str, Any] = {}
    if told["speculative"]:
        options["speculative_config"] = told["speculative"]
        options["scheduler_cls"] = _pinnable(told, clock, holder)
    engine = LLM(told["target"], **options)
    return engine, holder


def _pinnable(told: dict[str, Any], clock: Any, holder: dict[str, Any]) -> type:
    sys.path.insert(0, told["package_parent"])
    from adaptive import scheduler  # type: ignore[import-not-found]

    base = (
        scheduler.Adaptive
        if told["speculative"]["method"] == "ngram"
        else (scheduler.AdaptiveAsync)
    )

    class Pinnable(base):  # type: ignore[misc, valid-type]
        """Ours, with a length that can be pinned; pinned steps teach the controller nothing."""

        pinned: int | None = None
        used: Counter[int]
        """Steps by the length asked for in them."""

        def __init__(self, *args: Any, **kwargs: Any) -> None:
            super().__init__(*args, **kwargs)
            self.used = Counter()
            holder["scheduler"] = self

        def schedule(self, *args: Any, **kwargs: Any) -> Any:
            output = super().schedule(*args, **kwargs)
            if output.num_scheduled_tokens:
                self.used[output.num_spec_tokens_to_schedule] += 1
            return output

        def _fill(self) -> None:
            if self.pinned is None:
                super()._fill()
                return
            table = self.dynamic_sd_lookup
            table[1:] = [self.pinned] * (len(table) - 1)

        def _learn(self, output: Any, before: int) -> None:
            if self.pinned is None:
                super()._learn(output, before)

    Pinnable.clock = staticmethod(clock)
    return Pinnable


def main() -> None:
    """Serves commands until standard input ends."""
    told = json.loads(sys.argv[1])
    out = os.fdopen(int(sys.argv[2]), "w", buffering=1)
    stopwatch = time.process_time if told["clock"] == "cpu" else time.monotonic
    paused = 0.0

    def clock() -> float:
        # Stands still while other arms run, so that nothing is forgotten meanwhile.
        return stopwatch() - paused

    engine, holder = _engine(told, clock)
    from vllm import SamplingParams

    out.write(json.dumps({"ready": True}) + "\n")
    for line in sys.stdin:
        command = json.loads(line)
        scheduler = holder.get("scheduler")
        pinned = command["pinned"]
        began = stopwatch()
        if scheduler is not None:
            scheduler.pinned = pinned
            scheduler.used.clear()
            scheduler._fill()
        parameters = [
            SamplingParams(
                temperature=command["temperature"],
                max_tokens=command["tokens"],
                ignore_eos=True,
                seed=command["seed"] + index,
            )
            for index in range(command["streams"])
        ]
        prompts = prompts_of(command["kind"], command["streams"], command["seed"])
        wall, cpu = time.monotonic(), time.process_time()
        outputs = engine.generate(prompts, parameters, use_tqdm=False)
        found: dict[str, Any] = {
            "wall": time.monotonic() - wall,
            "cpu": time.process_time() - cpu,
            "tokens": sum(len(each.outputs[0].token_ids) for each in outputs),
            "text": zlib.crc32(
                json.dumps([list(each.outputs[0].token_ids) for each in outputs]).encode()
            ),
        }
        if scheduler is not None and pinned is None:
            choice = scheduler._controller.choice(command["streams"])
            found |= {"k": choice.k, "gain": choice.gain, "used": dict(scheduler.used)}
        else:
            paused += stopwatch() - began
        out.write(json.dumps(found) + "\n")


if __name__ == "__main__":
    main()
