"""Pods are released when nobody asks, come back for who does, and never in a rollout."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from tests.builders import (
    NOW,
    UID,
    a_deployment,
    a_gateway,
    a_pod,
    a_record,
    a_snapshot,
    a_spec,
    a_status,
    some_words,
    stamp,
)

from speculative_api.conditions import ConditionType, Reason
from speculative_api.gateway import Activity, Backend, Route, Waiting
from speculative_api.v1alpha1 import Condition
from speculative_operator.desired import checks
from speculative_operator.desired.native import native_lane
from speculative_operator.desired.objects import desired_objects
from speculative_operator.desired.route import next_route
from speculative_operator.rollout.decide import decide
from speculative_operator.rollout.leaving import stable_pods
from speculative_operator.settings import Settings
from speculative_operator.snapshot import GatewayPod, Snapshot

WORDS, NEXT = some_words(4), some_words(5)
AFTER = 600
SETTINGS = Settings(worker_image="worker:1", gateway_image="gateway:1")
METRICS = [{"name": "RequestsWaiting", "targetPerPod": 4}]
SKEW = 5000.0
"""The gateways' clocks are this far ahead: nothing may depend on it."""


def scaling(**more: Any) -> dict[str, Any]:
    idle = {"afterSeconds": AFTER, **more.pop("idle", {})}
    return {"minReplicas": 2, "maxReplicas": 8, "metrics": METRICS, "idle": idle, **more}


def quiet(
    seconds: float | None, *, silent: float = 0.0, watching: float = 9999.0, number: int = 0
) -> GatewayPod:
    """A gateway whose last request was so long ago, or that had none since it watches."""
    pod = a_gateway({WORDS.hash: 100}, number=number, silent_seconds=silent)
    assert pod.state is not None
    at = pod.state.sampled_at + SKEW
    activity = Activity(
        since=at - watching, requested_at=None if seconds is None else at + silent - seconds
    )
    state = pod.state.model_copy(update={"sampled_at": at, "activity": activity})
    return replace(pod, state=state)


def a_route(*, waiting: bool = True) -> Route:
    backend = Backend(hash=WORDS.hash, service=f"chat-{WORDS.hash}", weight=100)
    return Route(
        owner_uid=UID,
        sequence=1,
        model="chat",
        default=WORDS.hash,
        backends=(backend,),
        waiting=Waiting() if waiting else None,
    )


def a_world(
    *,
    k: int = 4,
    idle: dict[str, Any] | None = None,
    gateways: tuple[GatewayPod, ...] = (quiet(AFTER + 1),),
    pods: int = 2,
    ready: bool = True,
    spec: dict[str, Any] | None = None,
    **status: Any,
) -> Snapshot:
    block = {"autoscaling": scaling()} if spec is None else spec
    fields = {**status, **({"idle": idle} if idle else {})}
    return a_snapshot(
        a_spec(k=k, replicas=2, **block),
        status=a_status(stable=WORDS, **fields),
        revisions=[a_record(WORDS)],
        deployments=[a_deployment(WORDS, replicas=pods)],
        pods=[a_pod(WORDS, number=i, ready=ready) for i in range(pods)],
        gateways=gateways,
        route=a_route(),
    )


def condition(snapshot: Snapshot) -> Condition:
    found = decide(snapshot).status.conditions
    return next(c for c in found if c.type == ConditionType.IDLE)


def test_after_long_enough_everything_is_released() -> None:
    decision = decide(a_world())
    assert decision.transition
    assert decision.status.idle is not None
    assert [event.reason for event in decision.events] == [Reason.IDLE]
    after = replace(a_world(), status=decision.status)
    assert stable_pods(after) == 0
    again = decide(after)
    assert not again.transition
    assert [scale.replicas for scale in again.scales] == [0]
    kinds = [body["kind"] for body in desired_objects(after, again, SETTINGS)]
    assert "HorizontalPodAutoscaler" not in kinds
    assert (condition(after).status, condition(after).reason) == ("True", Reason.IDLE)


BUSY = {"canary": NEXT, "canaryFields": {"step": 0}}
GUARD = {"revision": 9, "hash": NEXT.hash, "startedAt": stamp(5), "weight": 5}
RESTART = {"hash": WORDS.hash, "at": stamp(5), "stamp": stamp(5)}
FAILED = [{"hash": NEXT.hash, "reason": "AcceptanceWorse", "at": stamp(60)}]
NIGHT = {"name": "night", "start": "0 3 * * *", "durationSeconds": 3600}


@pytest.mark.parametrize(
    ("world", "released"),
    [
        (a_world(gateways=(quiet(None),)), True),
        (a_world(gateways=(quiet(None, watching=AFTER - 1),)), False),
        (a_world(gateways=(quiet(AFTER - 1),)), False),
        (a_world(gateways=(quiet(AFTER + 1), quiet(3, number=1))), False),
        (a_world(gateways=(quiet(AFTER + 60, silent=9),)), False),
        (a_world(gateways=(a_gateway({WORDS.hash: 100}),)), False),
        (a_world(gateways=()), False),
        (a_world(**BUSY), False),
        (a_world(guard=GUARD), False),
        (a_world(retiring=[{"hash": NEXT.hash, "since": stamp(5)}]), False),
        (a_world(restart=RESTART), False),
        (a_world(k=5), False),
        (a_world(k=5, failedRevisions=FAILED), True),
        (a_world(available=False, ready=False), False),
        (a_world(spec={}), False),
        (a_world(spec={"autoscaling": scaling(schedules=[{**NIGHT, "minReplicas": 2}])}), False),
        (a_world(spec={"autoscaling": scaling(schedules=[{**NIGHT, "maxReplicas": 4}])}), True),
        (replace(a_world(), findings=("spec.x is wrong",)), False),
        (replace(a_world(), route=a_route(waiting=False)), False),
    ],
    ids=[
        "never asked",
        "watches only since now",
        "asked just now",
        "another gateway was asked",
        "an old answer",
        "an agent that does not know",
        "no gateway",
        "canary",
        "guard",
        "retiring",
        "restart",
        "a new revision",
        "a failed revision",
        "first start",
        "not wanted",
        "a schedule that asks for pods",
        "a schedule that only limits",
        "refused",
        "a route without waiting",
    ],
)
def test_pods_are_released_only_when_nothing_else_goes_on(world: Snapshot, released: bool) -> None:
    assert (decide(world).status.idle is not None) is released


def test_a_request_in_flight_keeps_pods() -> None:
    pod = quiet(AFTER + 1)
    assert pod.state is not None
    (cluster,) = pod.state.clusters
    busy = cluster.model_copy(update={"active": 1})
    state = pod.state.model_copy(update={"clusters": (busy,)})
    assert decide(a_world(gateways=(replace(pod, state=state),))).status.idle is None


ASLEEP = {"since": stamp(100)}


@pytest.mark.parametrize(
    ("world", "why"),
    [
        (a_world(idle=ASLEEP, pods=0, gateways=(quiet(3),)), "somebody asked"),
        (a_world(idle=ASLEEP, pods=0, gateways=(quiet(700), quiet(3, number=1))), "asked"),
        (a_world(idle=ASLEEP, pods=0, k=5), "new revision"),
        (a_world(idle=ASLEEP, pods=0, spec={}), "taken out"),
        (a_world(idle=ASLEEP, pods=0, gateways=(a_gateway(),)), "does not say"),
        (
            a_world(
                idle=ASLEEP,
                pods=0,
                spec={"autoscaling": scaling(schedules=[{**NIGHT, "minReplicas": 2}])},
            ),
            "schedule night",
        ),
        (a_world(idle=ASLEEP, pods=0, gateways=(quiet(101),)), ""),
        (a_world(idle=ASLEEP, pods=0, gateways=(quiet(None, watching=1),)), ""),
        (a_world(idle=ASLEEP, pods=0, gateways=()), ""),
        (a_world(idle=ASLEEP, pods=0, k=5, failedRevisions=FAILED), ""),
    ],
    ids=[
        "asked",
        "asked at the other",
        "revision",
        "taken out",
        "old agent",
        "schedule",
        "asked before",
        "a new agent",
        "no gateway",
        "a failed revision",
    ],
)
def test_pods_come_back_for_a_reason(world: Snapshot, why: str) -> None:
    decision = decide(world)
    assert decision.transition is bool(why)
    idle = decision.status.idle
    assert idle is not None
    assert (idle.woken_at is not None) is bool(why)
    if why:
        assert why in decision.events[0].message
        assert [s.replicas for s in decision.scales] == [2]
    else:
        assert [s.replicas for s in decision.scales] == [0]


def test_the_autoscaler_is_back_with_the_wake_and_writes_what_it_wrote() -> None:
    awake = a_world(idle={**ASLEEP, "wokenAt": stamp(20)}, pods=2, ready=False)
    decision = decide(awake)
    assert not decision.transition
    kinds = [body["kind"] for body in desired_objects(awake, decision, SETTINGS)]
    assert "HorizontalPodAutoscaler" in kinds
    assert condition(awake).reason == Reason.WAKING


def test_the_first_ready_pod_ends_a_wake_and_measures_it() -> None:
    awake = a_world(idle={**ASLEEP, "wokenAt": stamp(20)}, pods=2, k=5)
    one = replace(awake, pods=(awake.pods[0], replace(awake.pods[1], ready=False)))
    decision = decide(one)
    assert (decision.status.idle, decision.status.load_seconds) == (None, 20)
    assert condition(replace(one, status=decision.status)).reason == Reason.AWAKE


def test_a_wake_in_vain_ends_so_that_what_can_start_is_tried() -> None:
    """The image that stable was made from is gone, and the new spec names another one."""
    asleep_for_ever = a_world(idle={**ASLEEP, "wokenAt": stamp(20)}, ready=False, k=5)
    late = replace(asleep_for_ever, now=NOW + timedelta(seconds=3600))
    decision = decide(late)
    (event,) = decision.events
    assert (event.reason, event.type) == (Reason.AWAKE, "Warning")
    assert "0 of 2 pods are ready 3620 s after the wake" in event.message
    assert (decision.status.idle, decision.status.load_seconds) == (None, None)
    tried = decide(replace(late, status=decision.status)).status.canary
    assert tried is not None
    assert tried.hash == NEXT.hash


def test_a_new_revision_waits_for_stable_to_be_back() -> None:
    awake = a_world(idle={**ASLEEP, "wokenAt": stamp(20)}, pods=2, ready=False, k=5)
    assert decide(awake).status.canary is None
    back = decide(a_world(idle={**ASLEEP, "wokenAt": stamp(9)}, k=5)).status
    assert decide(replace(a_world(k=5), status=back)).status.canary is not None


def test_some_pods_may_stay() -> None:
    spec = {"autoscaling": scaling(idle={"replicas": 1})}
    world = replace(a_world(spec=spec), route=a_route(waiting=False))
    decision = decide(world)
    assert [scale.replicas for scale in decision.scales] == [1]
    assert next_route(world, decision).waiting is None
    asleep = replace(a_world(idle=ASLEEP, spec=spec, pods=1), status=decision.status)
    later = replace(asleep, now=NOW + timedelta(seconds=60), gateways=(quiet(5),))
    woken = decide(later)
    assert [scale.replicas for scale in woken.scales] == [2]
    # One ready pod was there all the time: the wake is over with the second.
    assert not decide(replace(later, status=woken.status)).transition
    full = replace(later, status=woken.status, pods=a_world().pods)
    assert decide(full).status.idle is None
    assert decide(full).status.load_seconds is None


def test_native_goes_too_and_stays_in_the_route() -> None:
    spec = {"autoscaling": scaling(), "lanes": {"native": {"replicas": 1}}}
    world = a_world(idle=ASLEEP, spec=spec)
    decision = decide(world)
    lane = native_lane(world, decision)
    assert lane.wanted is not None
    assert (lane.wanted.replicas, lane.serving) == (0, lane.wanted.hash)
    route = next_route(world, decision, lane)
    assert route.native is not None


@pytest.mark.parametrize(("measured", "told"), [(None, 60), (240, 240)])
def test_gateways_are_told_what_a_wake_takes(measured: int | None, told: int) -> None:
    fields = {"loadSeconds": measured} if measured else {}
    world = a_world(spec={"autoscaling": scaling(idle={"holdSeconds": 30})}, **fields)
    route = next_route(world, decide(world))
    assert route.waiting == Waiting(hold_seconds=30, retry_after_seconds=told)


def test_without_idle_the_route_says_nothing_of_waiting() -> None:
    world = a_world(spec={})
    assert next_route(world, decide(world)).waiting is None


def test_the_next_look_is_when_pods_may_go() -> None:
    assert decide(a_world(gateways=(quiet(AFTER - 40),))).next_look_seconds == pytest.approx(40)
    assert decide(a_world(gateways=(quiet(AFTER - 4),))).next_look_seconds == pytest.approx(15.1)
    assert decide(a_world(gateways=(quiet(1),))).next_look_seconds == 60.0
    assert decide(a_world(spec={})).next_look_seconds == 60.0


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        (
            {"autoscaling": scaling(), "gateway": {"mode": "None"}},
            "needs gateway.mode Envoy or Shared",
        ),
        (
            {
                "autoscaling": scaling(),
                "gateway": {"mode": "Shared", "shared": {"name": "edge"}},
            },
            "",
        ),
        (
            {
                "autoscaling": scaling(idle={"holdSeconds": 200}),
                "gateway": {"timeouts": {"idleSeconds": 100}},
            },
            "is more than gateway.timeouts.idleSeconds",
        ),
        ({"autoscaling": scaling(idle={"holdSeconds": 200})}, ""),
    ],
)
def test_what_can_t_work_is_refused(spec: dict[str, Any], said: str) -> None:
    found = checks.findings(a_spec(**spec), name="chat", settings=SETTINGS)
    assert bool(found) is bool(said)
    assert all(said in text for text in found)


def test_scale_to_zero_keeps_the_selector_and_shows_none() -> None:
    status = decide(a_world(idle=ASLEEP, pods=0)).status
    assert status.replicas == 0
    assert WORDS.hash in status.selector
