"""Pure: which route may follow which."""

import pytest

from speculative_api import gateway
from speculative_gateway.acceptance import accepted
from speculative_gateway.errors import RouteRefused
from speculative_gateway.render import Endpoint, Endpoints

A, B = "a" * 10, "b" * 10
READY = (Endpoint("10.0.0.1"),)
BOTH: Endpoints = {A: READY, B: READY}


def a_route(stable: int = 100, canary: int = 0, *, uid: str = "u", sequence: int = 5) -> str:
    """A route with two backends."""
    return gateway.Route(
        owner_uid=uid,
        sequence=sequence,
        model="m",
        default=A,
        backends=(
            gateway.Backend(hash=A, service=A, weight=stable),
            gateway.Backend(hash=B, service=B, weight=canary),
        ),
    ).model_dump_json(by_alias=True)


LAST = gateway.Route.model_validate_json(a_route())


@pytest.mark.parametrize(
    "text",
    [
        a_route(50, 50, sequence=6),
        a_route(50, 50, sequence=5),
        a_route(50, 50, sequence=1, uid="made again"),
        a_route()[:-1] + ', "fromTheFuture": {"x": 1}}',
    ],
    ids=["next", "same sequence", "another owner", "unknown field"],
)
def test_accepted(text: str) -> None:
    assert accepted(text, BOTH, last=LAST) == gateway.Route.model_validate_json(text)


@pytest.mark.parametrize(
    "text, reason",
    [
        (a_route(sequence=4), "sequence 4 is older than 5"),
        (a_route().replace('"weight":100', '"weight":90'), "weights sum to 90, need 100"),
        (a_route().replace('"schemaVersion":1', '"schemaVersion":9'), "schemaVersion"),
        (a_route().replace(f'"default":"{A}"', '"default":"cccccccccc"'), "default"),
        ("[]", "route: Input should be an object"),
    ],
    ids=["older", "sum", "schema version", "default", "not an object"],
)
def test_refused(text: str, reason: str) -> None:
    with pytest.raises(RouteRefused, match=reason):
        accepted(text, BOTH, last=LAST)


@pytest.mark.parametrize(
    "stable, canary, ready, good",
    [
        (50, 50, {A: READY}, False),
        (50, 50, {A: READY, B: ()}, False),
        (100, 0, {A: READY}, True),
        (50, 50, {}, True),
        (50, 50, {B: READY}, True),
    ],
    ids=["unknown canary", "empty canary", "weight 0", "nothing serves", "stable is gone"],
)
def test_a_weight_is_not_raised_for_a_dead_end_while_another_serves(
    stable: int, canary: int, ready: Endpoints, good: bool
) -> None:
    text = a_route(stable, canary, sequence=6)
    if good:
        assert accepted(text, ready, last=LAST).backends[1].weight == canary
    else:
        with pytest.raises(RouteRefused, match=f"weight {canary} for {B}"):
            accepted(text, ready, last=LAST)


@pytest.mark.parametrize("native", [False, True])
def test_an_engine_is_not_sent_to_without_its_authority(native: bool) -> None:
    tls = gateway.BackendTls(authority="engines", server_name="chat")
    route = gateway.Route.model_validate_json(a_route())
    if native:
        spoken = gateway.Backend(hash="c" * 10, service="c", weight=0, tls=tls)
        route = route.model_copy(update={"native": spoken})
    else:
        first, second = route.backends
        route = route.model_copy(
            update={"backends": (first, second.model_copy(update={"tls": tls}))}
        )
    text = route.model_dump_json(by_alias=True)
    with pytest.raises(RouteRefused, match="of Secret engines mounted"):
        accepted(text, BOTH, last=LAST)
    assert accepted(text, BOTH, last=LAST, authorities=("engines",)) == route


def shadowed(percent: int, *, sequence: int = 6) -> str:
    """A route that copies so many requests to the second backend."""
    route = LAST.model_copy(
        update={
            "sequence": sequence,
            "shadow": gateway.Shadow(hash=B, percent=percent, most_requests=8),
        }
    )
    return route.model_dump_json(by_alias=True)


def test_copies_begin_only_where_somebody_can_answer_them() -> None:
    alone: Endpoints = {A: READY}
    assert accepted(shadowed(10), BOTH, last=LAST).shadow is not None
    with pytest.raises(RouteRefused, match="shadow of 10 percent for bbbbbbbbbb"):
        accepted(shadowed(10), alone, last=LAST)
    copied = accepted(shadowed(10), BOTH, last=LAST)
    for percent in (10, 5, 0):
        assert accepted(shadowed(percent), alone, last=copied).shadow is not None


@pytest.mark.parametrize(
    "before, after, reason",
    [
        ('"percent":10', '"percent":101', "less than or equal to 100"),
        (f'"shadow":{{"hash":"{B}"', f'"shadow":{{"hash":"{A}"', "not the default one"),
        (f'"shadow":{{"hash":"{B}"', '"shadow":{"hash":"cccccccccc"', "has to be a backend"),
    ],
    ids=["percent", "stable", "unknown"],
)
def test_copies_for_whom_there_can_be_none_are_refused(
    before: str, after: str, reason: str
) -> None:
    text = shadowed(10)
    assert before in text
    with pytest.raises(RouteRefused, match=reason):
        accepted(text.replace(before, after), BOTH, last=LAST)


def test_a_revision_with_users_gets_no_copies() -> None:
    text = shadowed(10).replace('"weight":100', '"weight":95').replace('"weight":0', '"weight":5')
    with pytest.raises(RouteRefused, match="has weight 5: copies are for a revision without users"):
        accepted(text, BOTH, last=LAST)
