"""Metrics of one resource: whose pods count, what is guarded, what is no metric."""

from typing import Any

import pytest
from tests import builders
from tests.builders import NAME, NAMESPACE, NOW, UID, a_digest, a_raw_spec, some_words, stamp
from tests.reconcile.test_gather import Silence, a_raw_pod, stores_with

from speculative_api import labels
from speculative_api.revisions import native_hash
from speculative_api.worker import Digest
from speculative_operator.cluster.resources import POD, SPECULATIVE_DEPLOYMENT
from speculative_operator.external.values import Values, serving_pods
from speculative_operator.scaling.signals import Unmeasured, Value
from speculative_operator.settings import Settings

STABLE, NATIVE = some_words(4).hash, some_words(5).hash
WAITING = "speculative_requests_waiting"


class Talking(Silence):
    """Every pod has five requests waiting."""

    def digest(self, uid: str) -> Digest | None:  # type: ignore[override]
        del uid
        return a_digest(STABLE, waiting=5)


class Half:
    """GPUs that are busy half of the time."""

    def __init__(self) -> None:
        self.asked: tuple[str, ...] = ()

    async def utilization_percent(self, namespace: str, pods: tuple[str, ...]) -> Value:
        assert namespace == NAMESPACE
        self.asked = pods
        return 50.0


def a_pod(number: int, revision: str, *, ready: bool = True) -> dict[str, Any]:
    conditions = [{"type": "Ready", "status": str(ready)}]
    pod = a_raw_pod(conditions=conditions)
    pod["metadata"] |= {"name": f"pod-{number}", "uid": f"uid-{number}"}
    pod["metadata"]["labels"][labels.REVISION] = revision
    return pod


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def values(
    *pods: dict[str, Any], replicas: int = 1, clock: Clock | None = None, gpus: Half | None = None
) -> Values:
    metrics = [
        {"name": "RequestsWaiting", "targetPerPod": 4},
        {"name": "GpuUtilization", "targetPercent": 75},
    ]
    parent = {
        "metadata": {"name": NAME, "namespace": NAMESPACE, "uid": UID, "generation": 1},
        "spec": a_raw_spec(replicas=replicas, autoscaling={"maxReplicas": 8, "metrics": metrics}),
        "status": {"stable": {"revision": 1, "hash": STABLE}},
    }
    stores = stores_with((SPECULATIVE_DEPLOYMENT, parent), *((POD, pod) for pod in pods))
    return Values(
        stores, Talking(), Settings(), gpus or Half(), clock=clock or Clock(), utc_now=lambda: NOW
    )


KEY = (NAMESPACE, NAME)


async def test_pods_of_serving_revisions_count() -> None:
    found = values(a_pod(0, STABLE), a_pod(1, STABLE), a_pod(2, NATIVE), replicas=2)
    assert await found.of(KEY, WAITING) == 10


async def test_while_pods_load_no_more_is_asked_for_but_not_for_ever() -> None:
    clock = Clock()
    found = values(a_pod(0, STABLE), a_pod(1, STABLE, ready=False), replicas=1, clock=clock)
    assert await found.of(KEY, WAITING) == 5, "all that were asked for are ready"
    found = values(*(a_pod(i, STABLE) for i in range(5)), replicas=6, clock=clock)
    assert await found.of(KEY, WAITING) == 24, "25 would ask for a seventh"
    clock.now = 1801
    assert await found.of(KEY, WAITING) == 25, "the sixth can't start"


async def test_gpus_are_asked_about_for_ready_pods_only() -> None:
    gpus = Half()
    found = values(a_pod(0, STABLE), a_pod(1, STABLE, ready=False), gpus=gpus)
    assert await found.of(KEY, "speculative_gpu_utilization_percent") == 50
    assert gpus.asked == ("pod-0",)


@pytest.mark.parametrize(
    "key, name, why",
    [
        (KEY, "node_load", "is not a metric of ours"),
        (KEY, "speculative_tokens_per_second", "does not ask for TokensPerSecond"),
        ((NAMESPACE, "other"), WAITING, "there is no such resource"),
    ],
)
async def test_what_there_is_no_value_of(key: tuple[str, str], name: str, why: str) -> None:
    found = await values(a_pod(0, STABLE)).of(key, name)
    assert isinstance(found, Unmeasured)
    assert why in found.why


@pytest.mark.parametrize(
    ("ready", "counted"), [(1, ["n-0", "s-0", "s-1"]), (2, ["n-0", "n-1"])], ids=["half", "all"]
)
def test_pods_without_speculation_that_serve_are_what_counts(
    ready: int, counted: list[str]
) -> None:
    words = some_words(4)
    native = native_hash(words.canonical)
    drift = {"hash": words.hash, "state": "Disabled", "since": stamp()}
    pods = [builders.a_pod(words, number=number) for number in range(2)]
    pods += [builders.a_pod(native, number=number) for number in range(ready)]
    snapshot = builders.a_snapshot(
        builders.a_spec(k=4, replicas=2),
        status=builders.a_status(stable=words, drift=drift),
        pods=pods,
    )
    short = {words.hash: "s", native: "n"}
    found = [f"{short[p.revision]}-{p.name[-1]}" for p in serving_pods(snapshot)]
    assert sorted(found) == counted
