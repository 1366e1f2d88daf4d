"""What counts of what a Gateway's controllers say in an HTTPRoute and in InferencePools.

The words are those of Contour 1.33.
"""

from typing import Any

import pytest
from tests.builders import NAME, NAMESPACE, a_raw_spec
from tests.reconcile.test_gather import HASH, a_thing, stores_with, the_snapshot

from speculative_operator.cluster.resources import HTTP_ROUTE, INFERENCE_POOL
from speculative_operator.rollout.gateways import is_accepted
from speculative_operator.snapshot import HttpRoute, Pool

HERE: dict[str, Any] = {"name": "edge", "namespace": "infra"}
POOLS = {
    "backend": "InferencePool",
    "endpointPickerRef": {"name": "picker-{revision}"},
}
NOT_FOUND = {
    "type": "ResolvedRefs",
    "status": "False",
    "reason": "BackendNotFound",
    "message": 'service "chat-1234567890" is invalid: service "llm/chat-1234567890" not found',
}
DROPPED = {
    "type": "PartiallyInvalid",
    "status": "True",
    "reason": "RuleMatchPartiallyConflict",
    "message": "Dropped Rule: some of HTTPRoute's rule(s) has(ve) been dropped",
}


def said(
    ref: dict[str, Any], *others: dict[str, Any], generation: int = 4, accepted: str = "True"
) -> dict[str, Any]:
    """A parent's entry as a controller writes it."""
    usual = {"Accepted": accepted, "ResolvedRefs": "True"}
    conditions = {kind: {"type": kind, "status": word} for kind, word in usual.items()}
    conditions |= {condition["type"]: condition for condition in others}
    return {
        "parentRef": {"group": "gateway.networking.k8s.io", "kind": "Gateway", **ref},
        "controllerName": "example.com/c",
        "conditions": [{"observedGeneration": generation, **c} for c in conditions.values()],
    }


def read(*parents: dict[str, Any], at: dict[str, Any] = HERE) -> tuple[HttpRoute | None, Pool]:
    """The route and the pool of a resource at this Gateway, both with this status."""
    status = {"parents": list(parents)}
    route = a_thing(
        f"{NAME}-gateway",
        spec={"rules": [{}, {"backendRefs": [{"name": f"{NAME}-{HASH}", "weight": 100}]}]},
        status=status,
    )
    pool = a_thing(f"{NAME}-{HASH}", spec={}, status=status)
    for thing in (route, pool):
        thing["metadata"]["generation"] = 4
    gateway = {"mode": "GatewayAPI", "parentRef": at, **POOLS}
    snapshot = the_snapshot(
        stores_with((HTTP_ROUTE, route), (INFERENCE_POOL, pool)), spec=a_raw_spec(gateway=gateway)
    )
    return snapshot.http_route, snapshot.pools[HASH]


@pytest.mark.parametrize(
    ("parents", "at", "accepted"),
    [
        ([said(HERE)], HERE, True),
        ([said({"name": "edge"})], {"name": "edge"}, True),
        ([said({"name": "edge", "namespace": NAMESPACE})], {"name": "edge"}, True),
        ([said({"name": "edge"})], HERE, False),
        ([said(HERE | {"namespace": "other"})], HERE, False),
        ([said(HERE | {"name": "old"})], HERE, False),
        ([said(HERE | {"kind": "Service"})], HERE, False),
        ([said(HERE), said(HERE | {"name": "old"}, generation=1)], HERE, True),
        ([said(HERE), said(HERE | {"name": "old"}, accepted="False")], HERE, True),
        ([said(HERE), said({"name": "default", "kind": "Status"}, accepted="Unknown")], HERE, True),
        ([said(HERE), said(HERE, accepted="False")], HERE, False),
        ([said(HERE, generation=3)], HERE, False),
        ([said(HERE, NOT_FOUND)], HERE, False),
        ([said(HERE, DROPPED)], HERE, False),
        ([said(HERE, DROPPED | {"status": "False"})], HERE, True),
        ([{}], HERE, False),
    ],
    ids=[
        "there",
        "in our own namespace, unsaid",
        "in our own namespace, said",
        "one of its name here",
        "one of its name elsewhere",
        "one that was left",
        "something else of its name",
        "beside one that was left",
        "beside one that was left and refused",
        "beside a placeholder",
        "two controllers, one refuses",
        "an older version",
        "a backend is missing",
        "a rule was dropped",
        "no rule was dropped",
        "nothing",
    ],
)
def test_whose_word_counts(
    parents: list[dict[str, Any]], at: dict[str, Any], accepted: bool
) -> None:
    route, pool = read(*parents, at=at)
    assert (is_accepted(route), is_accepted(pool)) == (accepted, accepted)


@pytest.mark.parametrize(
    ("listener", "accepted"), [("https", True), ("http", False), (None, False)]
)
def test_the_word_of_another_listener_counts_for_a_pool_only(
    listener: str | None, accepted: bool
) -> None:
    entry = said(HERE | ({"sectionName": listener} if listener else {}))
    route, pool = read(entry, at=HERE | {"sectionName": "https"})
    assert (is_accepted(route), is_accepted(pool)) == (accepted, True)


@pytest.mark.parametrize("condition", [NOT_FOUND, DROPPED], ids=["missing", "dropped"])
def test_what_is_wrong_is_kept_in_the_controllers_words(condition: dict[str, str]) -> None:
    route, _ = read(said(HERE, condition), said(HERE | {"name": "old"}, accepted="False"))
    assert route is not None
    (parent,) = route.parents
    assert parent.message == f"{condition['reason']}: {condition['message']}"
