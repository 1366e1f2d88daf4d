"""What one `/metrics` costs vLLM itself, for `bench.scrape`, in vLLM's own interpreter.

No model is loaded: the logger of a real configuration registers every series that
the engine has, each is given a value, and the page is rendered as the engine's
server does (prometheus_client, `generate_latest`). Arguments: the model's folder,
the file for the page, the number of renderings, the file for the answer (JSON), and
names of series, of which alone a page is rendered beside the whole one.
"""

import json
import random
import sys
import time
from pathlib import Path
from typing import Any


def _fill(registry: Any) -> None:
    """Real pages have values of many digits everywhere."""
    chance = random.Random(7)  # noqa: S311
    for collector in set(registry._names_to_collectors.values()):
        labelled = getattr(collector, "_metrics", None)
        for metric in labelled.values() if isinstance(labelled, dict) else (collector,):
            names = ("observe", "set", "inc")
            changes = [getattr(metric, name) for name in names if hasattr(metric, name)]
            for _ in range(20 if changes and metric._is_observable() else 0):
                changes[0](chance.random() * 10)


def main() -> None:
    """The command."""
    model, page, times = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3])
    read: list[str] = json.loads(sys.argv[5])
    from prometheus_client import REGISTRY, generate_latest
    from vllm.engine.arg_utils import EngineArgs
    from vllm.v1.metrics.loggers import PrometheusStatLogger

    speculative = {"method": "ngram", "num_speculative_tokens": 5, "prompt_lookup_max": 4}
    options: dict[str, Any] = {"max_model_len": 512, "speculative_config": speculative}
    PrometheusStatLogger(EngineArgs(model=model, **options).create_engine_config(), [0])
    _fill(REGISTRY)
    page.write_bytes(generate_latest(REGISTRY))
    answer = {
        "all series": _rendered(REGISTRY, times),
        "series that a worker reads": _rendered(REGISTRY.restricted_registry(read), times),
    }
    Path(sys.argv[4]).write_text(json.dumps(answer))


def _rendered(registry: Any, times: int) -> dict[str, Any]:
    from prometheus_client import generate_latest

    began = time.process_time()
    for _ in range(times):
        text = generate_latest(registry)
    took = (time.process_time() - began) / times
    return {"milliseconds": round(1000 * took, 3), "bytes": len(text)}


if __name__ == "__main__":
    main()
