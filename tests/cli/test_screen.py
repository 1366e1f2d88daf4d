"""The screen, as golden text: what is shown, and in which order."""

from datetime import UTC, datetime

import pytest
from tests.cli.objects import (
    CANARY,
    FAILED,
    GOOD,
    STABLE,
    START,
    a_resource,
    canary,
    condition,
    failed,
    stable,
)

from speculative_cli import screen
from speculative_cli.errors import CliError
from speculative_cli.resource import parse

NOW = datetime(2026, 11, 30, 10, 0, 41, tzinfo=UTC)

AT_REST = """\
llm/chat  method NGram
Serving.

        REVISION  HASH        READY  WEIGHT  TOKENS/STEP
stable  3         6f9d00aa11  4/4    100 %   2.84"""

IN_A_STEP = """\
llm/chat  method NGram
Canary 4 is judged.

        REVISION  HASH        READY  WEIGHT                TOKENS/STEP
stable  3         6f9d00aa11  4/4    50 %                  2.84
canary  4         a01c22bb33  2/2    50 % (gateways: 0 %)  -

rollout   step 2 of 2: pause of at most 90 s, 41 s so far
next      nothing: it goes on by itself; kubectl speculative abort chat -n llm ends it"""

ROLLED_BACK = """\
llm/chat  method NGram
Rolled back.

          REVISION  HASH        READY  WEIGHT  TOKENS/STEP
stable    3         6f9d00aa11  4/4    100 %   2.84
retiring  -         77be44cc55  -      0 %     -

removing  77be44cc55, 41 s: waiting for its streams
verdict   77be44cc55 RolledBack (AcceptanceWorse), 41 s ago
          1.02 is less than 2.56
failed    77be44cc55 AcceptanceWorse, 41 s ago
not good  Available=False StableNotReady, 41 s: 3 of 4
          Progressing=False RolledBack, 41 s: as above
next      change the spec, or kubectl speculative retry chat -n llm --hash 77be44cc55"""

GUARDING = """\
llm/chat  method NGram
Serving.

        REVISION  HASH        READY  WEIGHT  TOKENS/STEP
stable  4         a01c22bb33  4/4    95 %    2.84
guard   3         6f9d00aa11  -      5 %     -

guard     41 s of 30 s, then 6f9d00aa11 goes"""

CASES = {
    "at rest": (a_resource(), AT_REST),
    "in a step": (
        a_resource(canary=canary(observedWeight=0), message="Canary 4 is judged."),
        IN_A_STEP,
    ),
    "rolled back": (
        a_resource(
            message="Rolled back.",
            retiring=[{"hash": FAILED, "since": START}],
            failedRevisions=[failed()],
            verdict={
                "hash": FAILED,
                "outcome": "RolledBack",
                "reason": "AcceptanceWorse",
                "message": "1.02 is less than 2.56",
                "at": START,
            },
            conditions=[
                condition("Progressing", "False", "RolledBack", "Rolled back."),
                condition("Available", "False", "StableNotReady", "3 of 4"),
            ],
        ),
        ROLLED_BACK,
    ),
    "guarding": (
        a_resource(
            stable=stable(hash=CANARY, revision=4),
            guard={"revision": 3, "hash": STABLE, "startedAt": START, "weight": 5},
        ),
        GUARDING,
    ),
}


@pytest.mark.parametrize(("raw", "expected"), CASES.values(), ids=CASES.keys())
def test_screen_is_as_golden(raw: dict[str, object], expected: str) -> None:
    assert screen.text(parse(raw), NOW) == expected


def test_a_spec_not_yet_looked_at_is_said() -> None:
    raw = a_resource(observedGeneration=6)
    assert "the newest spec was not looked at yet" in screen.text(parse(raw), NOW)


def test_a_resource_without_status_points_to_the_operator() -> None:
    raw = a_resource()
    del raw["status"]
    shown = screen.text(parse(raw), NOW)
    assert "no revision yet" in shown
    assert "is it running?" in shown


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
    assert "not good  Accepted=False InvalidSpec, 41 s: k is too big" in screen.text(resource, NOW)
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


def test_unknown_fields_in_the_rollout_ask_for_an_upgrade() -> None:
    raw = a_resource(steps=[{"shadow": {"percent": 10}}])
    with pytest.raises(CliError, match=r"can't read .*shadow.*upgrade"):
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
