"""The HTTPRoute where the golden cases say nothing: without a native lane."""

from typing import Any

import pytest
from tests.builders import a_record, a_snapshot, a_spec, a_status, some_words

from speculative_operator.decision import Decision, Scale, Share
from speculative_operator.desired.objects import desired_objects
from speculative_operator.settings import Settings

STABLE, CANARY = some_words(4), some_words(6)


def rules(*shares: Share, **gateway: Any) -> list[dict[str, Any]]:
    spec = a_spec(gateway={"mode": "GatewayAPI", "parentRef": {"name": "edge"}, **gateway})
    records = [a_record(words) for words in (STABLE, CANARY)]
    snapshot = a_snapshot(spec, status=a_status(stable=STABLE), revisions=records)
    scales = tuple(Scale(share.hash, "stable", 1) for share in shares)
    decision = Decision(status=snapshot.status, transition=False, scales=scales, shares=shares)
    (route,) = (
        body
        for body in desired_objects(snapshot, decision, Settings())
        if body["kind"] == "HTTPRoute"
    )
    found: list[dict[str, Any]] = route["spec"]["rules"]
    return found


@pytest.mark.parametrize("weight", [0, 50, 100])
def test_without_a_native_lane_its_requests_go_to_nobody_and_never_to_the_next_rule(
    weight: int,
) -> None:
    native, accelerated = rules(Share(STABLE.hash, 100 - weight), Share(CANARY.hash, weight))
    (header,) = native["matches"][0]["headers"]
    assert (header["name"], header["value"]) == ("x-speculative-lane", "native")
    # An empty list would be refused by some, and its requests go where the next rule leads.
    (backend,) = native["backendRefs"]
    assert (backend["name"], backend["weight"]) == (f"chat-{STABLE.hash}", 0)
    assert [b["weight"] for b in accelerated["backendRefs"]] == [100 - weight, weight]


def test_nobody_is_of_the_kind_that_the_gateway_leads_to() -> None:
    pools = {"backend": "InferencePool", "endpointPickerRef": {"name": "picker-{revision}"}}
    for rule in rules(Share(STABLE.hash, 100), **pools):
        assert [backend["kind"] for backend in rule["backendRefs"]] == ["InferencePool"]
