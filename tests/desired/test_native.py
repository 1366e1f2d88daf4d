"""The native lane: follows stable's words, is replaced surge-first, leaves only when unused."""

import pytest
from tests.builders import (
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

from speculative_api.gateway import Backend, Route
from speculative_api.v1alpha1 import FailedRevision
from speculative_operator.decision import Decision
from speculative_operator.desired.native import native_lane
from speculative_operator.desired.revision import native_words
from speculative_operator.snapshot import GatewayPod, Snapshot

LANE = {"native": {"replicas": 1}}
OLD_TARGET = {"model": "file:///models/old"}
OLD = native_words(some_words(target=OLD_TARGET))
NEW = native_words(some_words())
ROUTE_OLD = Route(
    owner_uid=UID,
    sequence=3,
    model="chat",
    native=Backend(hash=OLD.hash, service="x", weight=100),
)
ROUTE_NEW = ROUTE_OLD.model_copy(update={"native": Backend(hash=NEW.hash, service="y", weight=100)})


def replaced(*, ready: bool, route: Route, gateways: list[GatewayPod] | None = None) -> Snapshot:
    """Stable's target has changed; the old native pod is there, the new one ready or not."""
    stable = some_words()
    return a_snapshot(
        a_spec(lanes=LANE),
        status=a_status(stable=stable),
        revisions=[a_record(stable), a_record(OLD)],
        deployments=[a_deployment(stable), a_deployment(OLD, track="native")],
        pods=[a_pod(OLD), a_pod(NEW, ready=ready)],
        route=route,
        gateways=gateways or [],
    )


def lane_of(snapshot: Snapshot):  # type: ignore[no-untyped-def]
    return native_lane(snapshot, Decision(status=snapshot.status, transition=False))


def test_off_without_replicas() -> None:
    lane = lane_of(a_snapshot(status=a_status(stable=some_words())))
    assert (lane.wanted, lane.serving, lane.leaving) == (None, None, ())


@pytest.mark.parametrize("available", [True, False], ids=["available", "starting"])
def test_starts_beside_stable(available: bool) -> None:
    status = a_status(stable=some_words(), available=available)
    wanted = lane_of(a_snapshot(a_spec(lanes=LANE), status=status)).wanted
    assert wanted is not None
    assert (wanted.hash, wanted.track, wanted.replicas) == (NEW.hash, "native", 1)


def test_ends_with_a_first_revision_that_never_works() -> None:
    stable = some_words()
    failure = FailedRevision(hash=stable.hash, reason="Weights", message="missing", at="…")
    status = a_status(stable=stable, available=False)
    hopeless = status.model_copy(update={"failed_revisions": [failure]})
    assert lane_of(a_snapshot(a_spec(lanes=LANE), status=hopeless)).wanted is None
    # Stable that served once and was worse in a later trial keeps its lane.
    served = a_status(stable=stable).model_copy(update={"failed_revisions": [failure]})
    assert lane_of(a_snapshot(a_spec(lanes=LANE), status=served)).wanted is not None


def test_follows_stable_and_not_the_spec_during_a_rollout() -> None:
    stable = some_words(target=OLD_TARGET)
    snapshot = a_snapshot(
        a_spec(lanes=LANE),
        status=a_status(stable=stable, canary=some_words()),
        revisions=[a_record(stable)],
    )
    assert lane_of(snapshot).wanted.hash == OLD.hash


def test_the_old_pod_stays_and_serves_until_the_new_one_is_ready() -> None:
    lane = lane_of(replaced(ready=False, route=ROUTE_OLD))
    assert lane.wanted.hash == NEW.hash
    assert lane.serving == OLD.hash
    assert [scale.hash for scale in lane.leaving] == [OLD.hash]


def test_requests_move_before_the_old_pod_goes() -> None:
    lane = lane_of(replaced(ready=True, route=ROUTE_OLD))
    assert lane.serving == NEW.hash
    assert [scale.hash for scale in lane.leaving] == [OLD.hash]


@pytest.mark.parametrize(
    ("gateway", "stays"),
    [
        (a_gateway({OLD.hash: 0}), True),
        (a_gateway({NEW.hash: 0}), False),
        (a_gateway(answered=False, silent_seconds=30), True),
        (a_gateway(answered=False, silent_seconds=30, ready=False), False),
        (a_gateway({OLD.hash: 0}, silent_seconds=60), False),
    ],
    ids=["known-to-envoy", "gone-from-envoy", "silent", "silent-not-ready", "silent-for-long"],
)
def test_the_old_pod_goes_once_no_gateway_knows_it(gateway: GatewayPod, stays: bool) -> None:
    lane = lane_of(replaced(ready=True, route=ROUTE_NEW, gateways=[gateway]))
    assert [scale.hash for scale in lane.leaving] == ([OLD.hash] if stays else [])


def test_switching_the_lane_off_takes_it_out_of_the_route_first() -> None:
    stable = some_words()
    snapshot = a_snapshot(
        status=a_status(stable=stable),
        revisions=[a_record(stable)],
        deployments=[a_deployment(NEW, track="native")],
        route=ROUTE_NEW,
    )
    lane = lane_of(snapshot)
    assert (lane.wanted, lane.serving) == (None, None)
    assert [scale.hash for scale in lane.leaving] == [NEW.hash]


def test_stays_as_it_is_while_stables_record_is_lost() -> None:
    snapshot = a_snapshot(
        a_spec(lanes=LANE),
        status=a_status(stable="ffffffffff"),
        deployments=[a_deployment(OLD, track="native")],
        route=ROUTE_OLD,
    )
    lane = lane_of(snapshot)
    assert lane.serving == OLD.hash
    assert [scale.hash for scale in lane.leaving] == [OLD.hash]
