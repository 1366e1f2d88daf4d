"""Which engines gateways reach by TLS, and whose certificates they have to know for that."""

from typing import Any

import pytest
from tests.builders import a_record, a_snapshot, a_spec, a_status

from speculative_api.gateway import BackendTls
from speculative_api.v1alpha1 import SpeculativeDeploymentSpec
from speculative_operator.decision import Decision, Share
from speculative_operator.desired.engine_tls import authorities, backend_tls
from speculative_operator.desired.revision import words_of
from speculative_operator.desired.route import next_route


def speaking(secret: str | None) -> SpeculativeDeploymentSpec:
    tls = {"tls": {"secretName": secret, "serverName": "chat"}} if secret else {}
    return a_spec(engine=tls)


def world(asked: str | None, **stored: str | None) -> tuple[Any, Decision]:
    """A resource that asks for one Secret, and revisions in the route, stable first."""
    words = [words_of(speaking(secret)) for secret in stored.values()]
    status = a_status(stable=words[0], canary=words[1] if len(words) > 1 else None)
    snapshot = a_snapshot(
        speaking(asked), status=status, revisions=[a_record(each) for each in words]
    )
    weights = [100] if len(words) == 1 else [95, 5]
    shares = tuple(Share(each.hash, w) for each, w in zip(words, weights, strict=True))
    return snapshot, Decision(status=status, transition=False, shares=shares)


@pytest.mark.parametrize(
    ("asked", "stored", "expected"),
    [
        (None, {"stable": None}, ()),
        ("new", {"stable": None}, ("new",)),
        (None, {"stable": "old"}, ("old",)),
        ("new", {"stable": "old", "canary": "new"}, ("new", "old")),
        ("old", {"stable": "old"}, ("old",)),
    ],
    ids=["plain", "before its pods", "until it is gone", "two at a time", "settled"],
)
def test_gateways_know_every_authority_that_is_needed(
    asked: str | None, stored: dict[str, str | None], expected: tuple[str, ...]
) -> None:
    assert authorities(*world(asked, **stored)) == expected


def test_a_revision_is_reached_as_its_own_words_say_and_not_the_spec() -> None:
    snapshot, decision = world(None, stable="old")
    route = next_route(snapshot, decision)
    assert route.backends[0].tls == BackendTls(authority="old", server_name="chat")
    assert route.schema_version == 4


def test_agents_of_any_age_take_a_route_without_tls() -> None:
    assert next_route(*world("new", stable=None)).schema_version == 1


def test_where_a_record_is_lost_the_route_goes_on_saying_what_it_said() -> None:
    snapshot, decision = world(None, stable="old")
    route = next_route(snapshot, decision)
    lost = a_snapshot(speaking(None), status=snapshot.status, route=route)
    assert backend_tls(lost, route.backends[0].hash) == route.backends[0].tls
    assert backend_tls(lost, "0" * 10) is None
