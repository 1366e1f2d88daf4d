"""Who is at a shared gateway, and whose word counts: a table, and what always holds."""

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from speculative_api import gateway as api
from speculative_api.v1alpha1 import MEMBER_SETTINGS, SHARED_SETTINGS, Gateway
from speculative_operator.desired.membership import (
    Candidate,
    agreed,
    candidate,
    common_words,
    differences,
    settings_in,
    words_of_settings,
)

ONE: dict[str, Any] = {}
TWO = {"replicas": 2}
KEYS = {"auth": {"apiKeysSecret": "keys"}}


def a_candidate(name: str, settings: Any = None, *, age: int = 0, **fields: Any) -> Candidate:
    """`age` 0 is the oldest."""
    words = ONE if settings is None else settings
    return Candidate(name, f"uid-{name}", f"2026-11-30T12:00:0{age}Z", words, **fields)


def after(*rounds: Sequence[Candidate]) -> api.SharedGateway:
    """What was agreed after each round, one after the other."""
    found: api.SharedGateway | None = None
    for candidates in rounds:
        found = agreed(candidates, found, "edge")
    assert found is not None
    return found


def members(found: api.SharedGateway) -> list[str]:
    return [each.name for each in found.members]


A, B, C = (a_candidate(name, age=i) for i, name in enumerate("abc"))
A2, B2, C2 = (a_candidate(name, TWO, age=i) for i, name in enumerate("abc"))
AK, BK = (a_candidate(name, access=KEYS, age=i) for i, name in enumerate("ab"))


@pytest.mark.parametrize(
    ("rounds", "joined", "in_force"),
    [
        ([[A]], "a", ONE),
        ([[A, B]], "ab", ONE),
        ([[B, A]], "ab", ONE),
        # of two that come at once and differ the older one's words count
        ([[A, B2]], "a", ONE),
        # who says otherwise does not come in, and does not stop those who do
        ([[A], [A, C2, B]], "ab", ONE),
        ([[A], [A, B2], [A, B]], "ab", ONE),
        # a member that says otherwise stays, by what is in force
        ([[A, B], [A2, B]], "ab", ONE),
        ([[A, B], [A, B2]], "ab", ONE),
        # until all of them say the same
        ([[A, B], [A2, B], [A2, B2]], "ab", TWO),
        ([[A, B], [A2, B2, C]], "ab", TWO),
        ([[A, B], [A2, B2, C2]], "abc", TWO),
        ([[A, B2], [A2, B2]], "ab", TWO),
        # who lets in others is a member all the same
        ([[AK, BK], [A, BK]], "ab", ONE),
        ([[A, B], [AK, B]], "ab", ONE),
        ([[AK], [AK, B]], "ab", ONE),
        ([[A], [A, a_candidate("b", TWO, age=1, access=KEYS)]], "a", ONE),
        # and what all say alike is the gateway's, as older agents read it
        ([[AK, BK]], "ab", KEYS),
        ([[A, B], [AK, B], [AK, BK]], "ab", KEYS),
        # the last one's word is everybody's
        ([[A, B], [A, B2], [B2]], "b", TWO),
        # one that was made anew under the same name is another one
        ([[A, B], [A, a_candidate("b", TWO, age=5)]], "ab", ONE),
        # nobody of before is left
        ([[A], [B2]], "b", TWO),
    ],
)
def test_settings_are_in_force_until_all_members_say_others(
    rounds: list[list[Candidate]], joined: str, in_force: dict[str, Any]
) -> None:
    found = after(*rounds)
    assert (members(found), found.settings) == (list(joined), in_force)


def test_a_member_that_cannot_be_read_stays_and_nothing_is_taken_from_it() -> None:
    dark = Candidate("b", "uid-b", "2026-11-30T12:00:01Z", None)
    found = after([AK, BK], [A, dark])
    assert secrets(found) == {"a": "", "b": "keys"}
    assert secrets(after([AK, BK], [A, dark], [AK, dark])) == {"a": "keys", "b": "keys"}
    assert secrets(after([AK, B], [A, dark], [AK, dark])) == {"a": "keys", "b": ""}
    found = after([A, B_HOST], [A_HOST, dark])
    assert [each.hosts for each in found.members] == [(), (HOST,)]
    # nor does it come in
    assert members(after([A], [A, dark])) == ["a"]
    assert agreed([dark], None, "edge") is None


def test_words_that_only_a_newer_operator_knows_stay_as_they_are() -> None:
    newer = after([A]).model_copy(update={"settings": {"someday": 1}})
    assert agreed([A, B2, a_candidate("a", {"someday": 1})], newer, "edge") == newer


def secrets(found: api.SharedGateway) -> dict[str, str]:
    """The Secret whose keys each member asks for."""
    auths = {each.name: found.access_of(each).auth for each in found.members}
    return {name: auth.api_keys_secret if auth else "" for name, auth in auths.items()}


OTHER = {"auth": {"apiKeysSecret": "others"}}
LIMITED = {**KEYS, "rateLimit": {"requestsPerMinutePerKey": 100}}
INSIDE = {"allowedCidrs": ["10.0.0.0/8"]}
SHORT = {"maxRequestBodyBytes": 4096}


@pytest.mark.parametrize(
    ("one", "other", "version"),
    [
        (ONE, ONE, 1),
        (KEYS, KEYS, 1),
        (LIMITED, LIMITED, 1),
        (KEYS, ONE, 2),
        (KEYS, OTHER, 2),
        (KEYS, LIMITED, 2),
        (INSIDE, ONE, 2),
        (SHORT, ONE, 2),
    ],
)
def test_agents_that_know_no_member_of_its_own_word_refuse_what_they_would_misread(
    one: dict[str, Any], other: dict[str, Any], version: int
) -> None:
    rounds = [a_candidate("a", access=one), a_candidate("b", access=other, age=1)]
    found = after(rounds)
    assert found.schema_version == version
    # nothing that keeps somebody out stands where it could be read and the rest be left out
    text = json.loads(found.model_dump_json(by_alias=True))
    if version == 2:
        assert (text["auth"], text["rateLimit"], text["allowedCidrs"]) == (None, None, [])
        assert [each["access"]["settings"] for each in text["members"]] == [one, other]
    else:
        assert not any("access" in each for each in text["members"])
    assert api.SharedGateway.model_validate(text) == found
    # a second look, and one by its own text, changes nothing
    assert agreed(rounds, found, "edge") == found


def test_limits_are_divided_by_the_replicas_that_are_in_force() -> None:
    limited = a_candidate("a", {"replicas": 3}, access=LIMITED)
    found = after([limited, a_candidate("b", {"replicas": 3}, age=1)])
    shares = [found.access_of(each).rate_limit for each in found.members]
    assert shares == [api.RateLimit(requests_per_minute_per_key=34), None]
    # one that asks for fewer alone gets no larger share
    found = agreed(
        [replace(limited, settings=ONE), *[a_candidate("b", {"replicas": 3})]], found, "edge"
    )
    assert found is not None
    assert found.access_of(found.members[0]).rate_limit == shares[0]


def test_a_member_without_a_word_of_its_own_beside_others_is_refused() -> None:
    found = after([AK, B]).model_dump(mode="json", by_alias=True)
    del found["members"][1]["access"]
    with pytest.raises(ValidationError, match="b have no access"):
        api.SharedGateway.model_validate(found)
    with pytest.raises(ValidationError, match="schemaVersion 2"):
        api.SharedGateway.model_validate({**found, "schemaVersion": 1})


def test_agents_are_told_what_is_in_force() -> None:
    found = after([a_candidate("a", {"replicas": 3}, access={**LIMITED, **INSIDE, **SHORT})])
    assert found.auth == api.Auth(api_keys_secret="keys")
    # one of three pods' part
    assert found.rate_limit == api.RateLimit(requests_per_minute_per_key=34)
    assert (found.allowed_cidrs, found.max_request_body_bytes) == (("10.0.0.0/8",), 4096)


HOST = "x.example.com"
A_HOST, B_HOST = (a_candidate(n, age=i, hosts=(HOST,)) for i, n in enumerate("ab"))


@pytest.mark.parametrize(
    ("rounds", "owner"),
    [
        ([[A_HOST, B_HOST]], "a"),
        # who has it keeps it, also from an older one
        ([[A, B_HOST], [A_HOST, B_HOST]], "b"),
        ([[A, B_HOST], [A_HOST, B_HOST], [A_HOST, B]], "a"),
        ([[A_HOST, B_HOST], [B_HOST]], "b"),
        ([[A, a_candidate("b", TWO, age=1, hosts=(HOST,))]], None),
    ],
)
def test_a_host_is_one_members(rounds: list[list[Candidate]], owner: str | None) -> None:
    found = [each.name for each in after(*rounds).members if HOST in each.hosts]
    assert found == ([owner] if owner else [])


def test_differences_name_the_field_and_both_words() -> None:
    tls = {"tls": {"secretName": "edge-tls"}}
    said = list(differences({**TWO, **tls}, {"replicas": 3}))
    assert said == [
        "gateway.replicas is 2 here and 3 there",
        'gateway.tls is {"secretName": "edge-tls"} here and not set there',
    ]


def test_every_setting_of_the_gateway_is_in_its_words() -> None:
    said = {
        "mode": "Shared",
        "shared": {"name": "edge"},
        "replicas": 2,
        "service": {"type": "LoadBalancer"},
        "tls": {"secretName": "edge-tls"},
        "trustedProxyHops": 1,
        "auth": {"apiKeysSecret": "keys"},
        "rateLimit": {"requestsPerMinutePerKey": 9},
        "allowedCidrs": ["10.0.0.0/8"],
        "maxRequestBodyBytes": 4096,
        # a member's own
        "hosts": ["chat.example.com"],
        "timeouts": {"idleSeconds": 60},
    }
    wanted = candidate("a", "uid", "", Gateway.model_validate(said))
    assert wanted.settings is not None
    assert wanted.hosts == ("chat.example.com",)
    assert {*wanted.settings, *wanted.access} == said.keys() - {
        "mode",
        "shared",
        "hosts",
        "timeouts",
    }
    assert (len(wanted.settings), len(wanted.access)) == (
        len(SHARED_SETTINGS),
        len(MEMBER_SETTINGS),
    )
    found = settings_in({**wanted.settings, **wanted.access}, "edge")
    assert found is not None
    assert words_of_settings(found) == wanted.settings
    assert words_of_settings(Gateway()) == {}


SETTINGS = st.sampled_from([ONE, TWO])
ACCESSES = st.sampled_from([ONE, KEYS, OTHER])
SAID = st.tuples(SETTINGS, ACCESSES, st.booleans())
WORLDS = st.lists(
    st.dictionaries(st.sampled_from("abcd"), SAID, min_size=1),
    min_size=1,
    max_size=5,
)


@given(WORLDS)
def test_what_always_holds(
    worlds: list[dict[str, tuple[dict[str, Any], dict[str, Any], bool]]],
) -> None:
    found: api.SharedGateway | None = None
    for world in worlds:
        candidates = [
            a_candidate(
                name, words, age=ord(name) - ord("a"), access=access, hosts=(HOST,) if has else ()
            )
            for name, (words, access, has) in world.items()
        ]
        before, found = found, agreed(candidates, found, "edge")
        assert found is not None
        joined = {each.owner_uid for each in found.members}
        stayed = {each.owner_uid for each in before.members} if before else set()
        # nobody is put out; somebody is always in; nothing counts that no member says
        assert stayed & {each.uid for each in candidates} <= joined
        assert joined
        # each lets in whom it says itself
        said = {c.name: c.access.get("auth", {}).get("apiKeysSecret", "") for c in candidates}
        assert all(said[name] == secret for name, secret in secrets(found).items())
        in_force = common_words(found)
        if before is not None and in_force != common_words(before):
            mine = [each.settings for each in candidates if each.uid in joined]
            assert all(words == in_force for words in mine)
        assert sum(HOST in each.hosts for each in found.members) <= 1
        assert agreed(candidates, found, "edge") == found
