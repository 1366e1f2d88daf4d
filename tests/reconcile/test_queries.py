"""A running operator asks the queries of whoever is judged, and of nobody else."""

import asyncio
from typing import Any

from tests.builders import NAME, NAMESPACE, UID, a_raw_spec, a_status, some_words
from tests.reconcile.test_gather import Silence
from tests.reconcile.test_refusal import Recorder

from speculative_api.v1alpha1 import Analysis
from speculative_operator.analysis.queried import Measurement
from speculative_operator.cluster.resources import JSON, SPECULATIVE_DEPLOYMENT
from speculative_operator.metrics.prometheus import Queries
from speculative_operator.operation import Operation
from speculative_operator.settings import Settings
from speculative_operator.telemetry import Telemetry

ANALYSIS = {
    "metrics": [{"name": "gpu", "prometheus": {"query": "up", "min": "1"}}],
    "prometheus": {"address": "http://prometheus:9090"},
}


class Asked(Queries):
    """Notes what is asked."""

    def __init__(self) -> None:
        super().__init__(self.no_secret)
        self.found: list[tuple[Any, Any]] = []
        self.asked = asyncio.Event()

    async def no_secret(self, *_: Any) -> str:
        raise AssertionError

    def ask(
        self, place: tuple[str, str], analysis: Analysis, words: Any, *, at: float
    ) -> dict[str, Measurement]:
        del at
        self.found.append((place, dict(words)))
        self.asked.set()
        return {check.name: Measurement(1.0, value=0.0) for check in analysis.metrics}


def a_parent() -> JSON:
    status = a_status(stable=some_words(4), canary=some_words(5), canaryFields={"step": 0})
    return {
        "metadata": {
            "name": NAME,
            "namespace": NAMESPACE,
            "uid": UID,
            "generation": 2,
            "resourceVersion": "5",
        },
        "spec": a_raw_spec(
            speculation={"method": "NGram", "numSpeculativeTokens": 5},
            rollout={"analysis": ANALYSIS},
        ),
        "status": status.model_dump(mode="json", by_alias=True, exclude_none=True),
    }


async def test_a_trial_asks_with_the_names_of_its_revisions() -> None:
    parent, queries = a_parent(), Asked()
    operation = Operation(Recorder(parent), Silence(), Settings(), Telemetry(), queries=queries)
    operation.stores[SPECULATIVE_DEPLOYMENT.kind].put(parent)
    for reflector in operation.reflectors.values():
        reflector.synced.set()
    operation.begin()
    try:
        async with asyncio.timeout(60):
            await queries.asked.wait()
    finally:
        await operation.end()
    words = {
        "canary": some_words(5).hash,
        "stable": some_words(4).hash,
        "name": NAME,
        "namespace": NAMESPACE,
    }
    assert queries.found[0] == ((NAMESPACE, NAME), words)
