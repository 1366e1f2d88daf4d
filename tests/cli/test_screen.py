"""The screen: what is told below the tree, and what programs are told."""

from datetime import UTC, datetime

import pytest
from tests.cli.objects import (
    CANARY,
    FAILED,
    GOOD,
    PARKED,
    START,
    a_resource,
    canary,
    condition,
    failed,
)

from speculative_cli import screen
from speculative_cli.errors import CliError
from speculative_cli.resource import parse

NOW = datetime(2026, 11, 30, 10, 0, 41, tzinfo=UTC)


@pytest.mark.parametrize(
    ("changes", "steps"),
    [
        ({"held": "AnalysisInconclusive"}, None),
        ({}, [{"weight": 5}, {"pause": {}}]),
    ],
    ids=["held", "pause without end"],
)
def test_a_rollout_that_waits_for_a_person_names_both_ways_out(
    changes: dict[str, str], steps: list[object] | None
) -> None:
    resource = parse(a_resource(steps=steps, canary=canary(**changes)))
    assert screen.next_actions(resource) == [
        "kubectl speculative promote chat -n llm",
        "kubectl speculative abort chat -n llm",
    ]


def test_a_refused_spec_says_what_to_do() -> None:
    refused = [condition("Accepted", "False", "InvalidSpec", "k is too big"), *GOOD[1:]]
    resource = parse(a_resource(conditions=refused))
    assert "not good  Accepted=False InvalidSpec, 41 s: k is too big" in screen.details(
        resource, NOW
    )
    assert screen.next_actions(resource) == ["correct the spec as the condition Accepted says"]


def test_no_steps_means_the_documented_default() -> None:
    found = screen.document(parse(a_resource(steps=[], canary=canary(step=0))), NOW)
    assert found["steps"] == ["weight 10 %", "pause of at most 300 s"]
    assert found["step"] == 1


def test_the_document_keeps_the_status_as_stored() -> None:
    raw = a_resource()
    raw["status"]["fromTheFuture"] = 1
    assert screen.document(parse(raw), NOW)["status"] == raw["status"]


def test_retry_is_offered_for_the_revision_that_the_condition_tells_of() -> None:
    told = condition("Progressing", "False", "RolledBack", "AcceptanceWorse: 1.02 is less")
    resource = parse(
        a_resource(
            conditions=[told],
            failedRevisions=[
                failed(message="1.02 is less"),
                failed(CANARY, message="3 restarts", at="2026-11-30T11:00:00Z"),
            ],
        )
    )
    (action,) = screen.next_actions(resource)
    assert action.endswith(f"retry chat -n llm --hash {FAILED}")


def test_a_held_canary_is_resumed_or_aborted() -> None:
    held = condition("Progressing", "Unknown", "PausedOnRequest")
    raw = a_resource(canary=canary(held="PausedOnRequest"), conditions=[held])
    assert screen.next_actions(parse(raw)) == [
        "kubectl speculative resume chat -n llm",
        "kubectl speculative abort chat -n llm",
    ]


def test_a_parked_revision_says_how_to_go_on() -> None:
    parked = condition("Progressing", "False", "RollbacksCapped")
    raw = a_resource(conditions=[parked], failedRevisions=[failed()])
    assert screen.next_actions(parse(raw)) == [
        "wait, or kubectl speculative retry chat -n llm --hash HASH of a failed one"
    ]


def test_a_revision_without_room_is_waited_for_or_retried() -> None:
    found = condition("Progressing", "False", "CapacityBlocked")
    raw = a_resource(conditions=[found], parked=PARKED)
    assert screen.next_actions(parse(raw)) == [
        "wait until 2026-11-30T11:00:00Z, change the spec, or "
        f"kubectl speculative retry chat -n llm --hash {CANARY}"
    ]


def test_a_rollout_at_zero_is_scaled_up_or_aborted() -> None:
    raw = a_resource(canary=canary(held="ScaledToZero"))
    assert screen.next_actions(parse(raw)) == [
        "kubectl scale speculativedeployment chat -n llm --replicas=N",
        "kubectl speculative abort chat -n llm",
    ]


@pytest.mark.parametrize("part", ["spec", "status"])
def test_a_part_that_is_null_is_as_absent(part: str) -> None:
    assert parse(a_resource() | {part: None}) == parse(a_resource() | {part: {}})


def test_unknown_fields_in_the_rollout_ask_for_an_upgrade() -> None:
    raw = a_resource(steps=[{"mirror": {"percent": 10}}])
    with pytest.raises(CliError, match=r"can't read .*mirror.*upgrade"):
        parse(raw)


@pytest.mark.parametrize(
    ("since", "expected"),
    [
        ("2026-11-30T10:00:00Z", "41 s"),
        ("2026-11-30T10:00:50Z", "0 s"),
        ("2026-11-30T09:55:00Z", "5 min 41 s"),
        ("2026-11-30T06:00:00Z", "4 h 00 min"),
        ("2026-11-27T08:00:00Z", "3 d 2 h"),
        ("yesterday", "yesterday"),
        ("2026-11-30T10:00:00", "2026-11-30T10:00:00"),
    ],
)
def test_age_is_told_in_two_units(since: str, expected: str) -> None:
    assert screen.age(since, NOW) == expected


@pytest.mark.parametrize(
    ("seconds", "said"),
    [
        (90, "at 10:01:30 UTC, in 49 s"),
        (10_800, "at 13:00:00 UTC, in 2 h 59 min"),
        (86_400, "at 2026-12-01 10:00:00 UTC, in 23 h 59 min"),
        (30, "at 10:00:30 UTC, which is over"),
    ],
)
def test_what_comes_is_told_with_its_moment(seconds: int, said: str) -> None:
    assert screen.later(START, seconds, NOW) == said


@pytest.mark.parametrize("since", ["yesterday", "2026-11-30T10:00:00", ""])
def test_a_garbled_moment_is_shown_as_it_is(since: str) -> None:
    assert screen.later(since, 30, NOW) in (f"30 s after {since}", "at 10:00:30 UTC, which is over")


STEPS = [
    {"weight": 5},
    {"pause": {"durationSeconds": 90}},
    {"pause": {}},
    {"shadow": {"percent": 10, "durationSeconds": 90}},
    {"shadow": {"percent": 20}},
]
FOLLOWING = {
    "a weight": ({"step": 0}, "then pause of at most 90 s"),
    "a timed pause": (
        {"step": 1},
        "then pause until promote, at 10:01:30 UTC, in 49 s at the latest",
    ),
    "a held pause": ({"step": 1, "held": "AnalysisInconclusive"}, "then pause until promote"),
    "an endless pause": ({"step": 2}, "then shadow 10 % for at most 90 s, after promote"),
    "a shadow that begins": (
        {"step": 3, "shadow": 10},
        "then shadow 20 % until promote, 90 s after every gateway copies, at the latest",
    ),
    "a shadow": (
        {"step": 3, "shadow": 10, "shadowObservedAt": START},
        "then shadow 20 % until promote, at 10:01:30 UTC, in 49 s at the latest",
    ),
    "an endless shadow": ({"step": 4, "shadow": 20}, "then promotion, after promote"),
}


@pytest.mark.parametrize(("changes", "said"), FOLLOWING.values(), ids=FOLLOWING.keys())
def test_the_next_step_is_told(changes: dict[str, object], said: str) -> None:
    resource = parse(a_resource(steps=STEPS, canary=canary(**changes)))
    assert f"          {said}" in screen.details(resource, NOW)


def test_a_shadow_that_waits_for_a_person_names_both_ways_out() -> None:
    resource = parse(a_resource(steps=STEPS, canary=canary(step=4, shadow=20)))
    actions = screen.next_actions(resource)
    assert [action.split()[2] for action in actions] == ["promote", "abort"]
