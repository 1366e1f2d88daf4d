"""Status was emptied while children exist: nothing is guessed and no capacity is taken away."""

import pytest
from tests.builders import (
    NAME,
    NAMESPACE,
    UID,
    a_deployment,
    a_gateway,
    a_pod,
    a_record,
    a_snapshot,
    a_spec,
    a_status,
    some_words,
)
from tests.rollout.test_scenarios import trying

from speculative_api.gateway import Backend, Route
from speculative_api.labels import RETRY
from speculative_api.v1alpha1 import SpeculativeDeploymentStatus
from speculative_operator.cluster.protected import is_protected
from speculative_operator.desired import names
from speculative_operator.rollout.decide import decide
from speculative_operator.rollout.gateways import everyone_uses, nobody_sends
from speculative_operator.snapshot import Snapshot

STABLE, CANARY = some_words(4), some_words(6)


def a_route(*weights: tuple[str, int], sequence: int = 7) -> Route:
    backends = tuple(Backend(hash=h, service=f"{NAME}-{h}", weight=w) for h, w in weights)
    return Route(
        owner_uid=UID,
        sequence=sequence,
        model=NAME,
        default=backends[0].hash,
        backends=backends,
    )


def an_emptied_world(*, records: bool = True, retry: bool = False) -> Snapshot:
    return a_snapshot(
        a_spec(k=6),
        annotations={RETRY: "0123456789@1"} if retry else {},
        revisions=[a_record(STABLE), a_record(CANARY, number=2)] if records else [],
        deployments=[a_deployment(STABLE)],
        pods=[a_pod(STABLE)],
        gateways=[a_gateway({STABLE.hash: 100}, sequence=7)],
        route=a_route((STABLE.hash, 100)),
    )


def test_a_canary_on_its_way_is_taken_out_in_order() -> None:
    world, stable, canary = trying()
    pods = list(world.pods[canary])
    world.status = SpeculativeDeploymentStatus()
    world.until("StableRestored", looks=1)
    assert world.status.stable is not None
    assert world.status.stable.hash == stable
    assert world.pods[canary] == pods
    world.until("WeightZeroObserved")
    world.until("RevisionRemoved")
    assert world.until("CanaryStarting")


def test_stable_is_read_from_the_route_also_without_its_record() -> None:
    stable = decide(an_emptied_world(records=False)).status.stable
    assert stable is not None
    assert stable.hash == STABLE.hash


def test_an_old_retry_does_not_come_first() -> None:
    decision = decide(an_emptied_world(retry=True))
    assert decision.status.stable is not None
    assert [scale.hash for scale in decision.scales] == [STABLE.hash]


def test_while_stable_is_unknown_nothing_that_serves_is_pruned() -> None:
    snapshot = a_snapshot(findings=("spec.pod.env[0] has no name",))
    decision = decide(snapshot)
    assert decision.status.stable is None
    live = {
        "kind": "Deployment",
        "metadata": {
            "name": f"{NAME}-{STABLE.hash}",
            "namespace": NAMESPACE,
            "labels": names.worker_labels(NAME, STABLE.hash),
        },
    }
    assert is_protected(live, snapshot, decision)


@pytest.mark.parametrize(("used", "seen"), [(6, False), (7, True), (8, True)])
def test_a_weight_is_seen_only_on_a_gateway_that_uses_the_newest_route(
    used: int, seen: bool
) -> None:
    snapshot = a_snapshot(
        status=a_status(stable=STABLE),
        gateways=[a_gateway({STABLE.hash: 100, CANARY.hash: 0}, sequence=used)],
        route=a_route((STABLE.hash, 100), (CANARY.hash, 0)),
    )
    assert nobody_sends(snapshot, CANARY.hash) is seen
    assert everyone_uses(snapshot, STABLE.hash, 100) is seen
