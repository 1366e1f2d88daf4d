"""What goes wrong with a simulated engine, and when: from its configuration or at run time.

PURE: clock and chance come in. `Faults` answers
questions of the rest of the engine; `fault_from` reads one fault's JSON.
"""

import random
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

KINDS: Final[Mapping[str, tuple[str, ...]]] = {
    "Crash": (),
    "GpuOutOfMemory": (),
    "HostOutOfMemory": (),
    "Stall": (),
    "Errors": ("percent",),
    "AcceptanceDecline": ("percent",),
    "CounterReset": (),
    "EmptyMetrics": (),
    "HtmlMetrics": (),
    "WrongTokens": ("percent",),
    "RefuseParameter": ("parameter",),
    "Slow": ("percent",),
}
"""Every kind of fault, with what must be said about it."""
ENDS: Final = ("Crash", "GpuOutOfMemory", "HostOutOfMemory")
"""Kinds that end the process."""

CRASH_SAMPLES: Final[Mapping[str, str]] = {
    "Vocabulary": """\
  File "vllm/config/speculative.py", line 1880, in verify_equal_vocab_size_if_draft_model
ValueError: Target and draft model should have the same vocabulary size. Target model \
vocab_size=152064. Draft model vocab_size=151936. Using models with different tokenizers can \
cause out-of-bounds errors during speculative decoding.""",
    "Arguments": """\
usage: api_server.py [-h] [--model MODEL] ...
api_server.py: error: unrecognized arguments: --speculative-model org/d""",
    "GpuMemory": """\
torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total \
capacity of 79.15 GiB of which 1.20 GiB is free.
RuntimeError: Engine core initialization failed. See root cause above.""",
    "CacheMemory": "ValueError: No available memory for the cache blocks. Try increasing "
    "`gpu_memory_utilization` when initializing the engine.",
    "Gated": "huggingface_hub.errors.GatedRepoError: 403 Client Error. Access to model org/x is "
    "restricted and you are not in the authorized list.",
    "NoWeights": "RuntimeError: Cannot find any model weights with `/models/x`",
    "HubAway": "huggingface_hub.errors.LocalEntryNotFoundError: Cannot find the requested files "
    "in the disk cache and outgoing traffic has been disabled.",
    "Draft": """\
  File "vllm/v1/worker/gpu_model_runner.py", line 4012, in propose_draft_token_ids
torch.AcceleratorError: CUDA error: an illegal memory access was encountered
vllm.v1.engine.exceptions.EngineDeadError: EngineCore encountered an issue. See stack trace \
(above) for the root cause.""",
}
"""Last words of engines that ended; the same texts that the worker's classification is tested with,
after vLLM 0.32.0's sources and public reports."""


class BadFault(ValueError):
    """Not a fault that is known here; the message names the field and the remedy."""


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault; it begins `after_seconds` after it was asked for."""

    kind: str
    after_seconds: float = 0.0
    percent: int = 0
    over_seconds: float = 0.0
    parameter: str = ""
    text: str = ""
    exit_code: int = 1


def fault_from(content: Any) -> Fault:
    """Reads one fault. Raises `BadFault`."""
    if not isinstance(content, dict) or content.get("kind") not in KINDS:
        raise BadFault(f"kind must be one of {', '.join(KINDS)}")
    kind = content["kind"]
    if missing := [name for name in KINDS[kind] if content.get(name) in (None, "")]:
        raise BadFault(f"{kind} needs {missing[0]}")
    sample = content.get("sample") or ("GpuMemory" if kind == "GpuOutOfMemory" else "")
    if sample and sample not in CRASH_SAMPLES:
        raise BadFault(f"sample must be one of {', '.join(CRASH_SAMPLES)}, not {sample!r}")
    return Fault(
        kind=kind,
        after_seconds=_number(content, "afterSeconds", 86_400),
        percent=int(_number(content, "percent", 10_000)),
        over_seconds=_number(content, "overSeconds", 86_400),
        parameter=str(content.get("parameter") or "")[:64],
        text=str(content.get("text") or "")[:2048] or CRASH_SAMPLES.get(sample, ""),
        exit_code=2 if sample == "Arguments" else 1,
    )


def _number(content: Mapping[str, Any], name: str, largest: float) -> float:
    value = content.get(name) or 0
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 <= value <= largest:
        raise BadFault(f"{name} must be a number from 0 to {largest:g}")
    return value


class Faults:
    """The faults asked for so far; times are in seconds since any fixed moment."""

    def __init__(self, faults: Iterable[Fault], *, now: float) -> None:
        self._begun: list[tuple[float, Fault]] = []
        self.changed = 0
        """Rises with every change, for whoever waits for the next end."""
        for fault in faults:
            self.add(fault, now=now)

    def add(self, fault: Fault, *, now: float) -> None:
        """Asks for one more; a later one of the same kind counts before an earlier one."""
        self._begun.append((now + fault.after_seconds, replace(fault)))
        self.changed += 1

    def clear(self) -> None:
        """Forgets all of them."""
        self._begun.clear()
        self.changed += 1

    @property
    def all(self) -> list[tuple[float, Fault]]:
        """Each with the moment it begins."""
        return list(self._begun)

    def found(self, kind: str, now: float) -> tuple[float, Fault] | None:
        """The newest one of a kind that has begun, with its beginning."""
        return next(
            (one for one in reversed(self._begun) if one[1].kind == kind and one[0] <= now), None
        )

    def next_end(self) -> tuple[float, Fault] | None:
        """The first fault that ends the process, with its moment."""
        ends = [one for one in self._begun if one[1].kind in ENDS]
        return min(ends, key=lambda one: one[0], default=None)

    def stalls(self, now: float) -> bool:
        """Whether nothing is generated any more."""
        return self.found("Stall", now) is not None

    def draws(self, kind: str, now: float, chance: random.Random) -> bool:
        """Whether this one is among the `percent` that the fault hits."""
        found = self.found(kind, now)
        return found is not None and chance.random() * 100 < found[1].percent

    def refuses(self, parameters: Iterable[str], now: float) -> str | None:
        """The parameter of a request that is refused, if there is one."""
        given = set(parameters)
        refused = (
            fault.parameter
            for begins, fault in self._begun
            if fault.kind == "RefuseParameter" and begins <= now
        )
        return next((name for name in refused if name in given), None)

    def slowness(self, now: float) -> float:
        """Factor of every step's time."""
        found = self.found("Slow", now)
        return found[1].percent / 100 if found else 1.0

    def acceptance(self, percent: float, now: float) -> float:
        """Acceptance in percent, on its way to the fault's own."""
        found = self.found("AcceptanceDecline", now)
        if found is None:
            return percent
        begins, fault = found
        way = min(1.0, (now - begins) / fault.over_seconds) if fault.over_seconds else 1.0
        return percent + (min(fault.percent, percent) - percent) * way

    def takes_reset(self, now: float) -> bool:
        """Whether the counters begin anew now; true once for each such fault."""
        found = self.found("CounterReset", now)
        if found is None:
            return False
        self._begun.remove(found)
        return True
