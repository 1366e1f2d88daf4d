"""The tree, as golden text: gateway, lanes, revisions, pods, evidence."""

from datetime import UTC, datetime
from typing import Any

import pytest
from tests.cli.objects import (
    CANARY,
    FAILED,
    STABLE,
    START,
    a_resource,
    canary,
    condition,
    failed,
    stable,
)

from speculative_api.assessment import JudgedMetric, JudgedTrial
from speculative_cli import tree
from speculative_cli.looking import PodView, View
from speculative_cli.resource import parse
from speculative_cli.terminal import Style

NOW = datetime(2026, 11, 30, 10, 0, 41, tzinfo=UTC)

AT_REST = """\
llm/chat  method NGram
Serving.

└─ lane accelerated
   └─ stable  3 (6f9d00aa11)  100 %  4/4 ready  2.84 tokens/step"""

JUDGED = """\
llm/chat  method NGram
Canary 4 is judged.

├─ gateway  1 of 2 ready
│  ├─ chat-gateway-2  Unschedulable: no node
│  └─ chat-gateway-1  ready
├─ lane accelerated
│  ├─ stable  3 (6f9d00aa11)  50 %  4/4 ready  2.84 tokens/step
│  │  ├─ chat-6f9d-2  CrashLoopBackOff, 3 restarts
│  │  └─ chat-6f9d-1  ready  2.85
│  └─ canary  4 (a01c22bb33)  50 % (gateways: 0 %)  2/2 ready
│     ├─ chat-a01c-1  ready
│     └─ evidence  35 requests, last look 12 s ago
│        ├─ AcceptanceLength  worse ██████░░░░ 1 in 40 of 400  not worse █████░░░░░ 1 in 4 of 20
│        ├─ ErrorRate         not measured
│        └─ E2E (dry run)     worse ██████████ 1 in 4,000 of 400  not worse ░░░░░░░░░░ 1 in 1 of 20
└─ lane native  1 of 1 ready
   └─ chat-0000-1  ready

rollout   step 2 of 2: pause of at most 90 s, 41 s so far
          then promotion, at 10:01:30 UTC, in 49 s at the latest
next      nothing: it goes on by itself; kubectl speculative abort chat -n llm ends it
(note)    evidence is stale"""

SHADOWED = """\
llm/chat  method NGram
Canary 4 is judged.

└─ lane accelerated
   ├─ stable  3 (6f9d00aa11)  100 %  4/4 ready  2.84 tokens/step
   └─ canary  4 (a01c22bb33)  shadow 10 % (gateways: 0 %)  2/2 ready

rollout   step 1 of 2: shadow 10 % for at most 120 s, 41 s so far
          then weight 5 %, 120 s after every gateway copies, at the latest
next      nothing: it goes on by itself; kubectl speculative abort chat -n llm ends it"""

ROLLED_BACK = """\
llm/chat  method NGram
Rolled back.

└─ lane accelerated
   ├─ stable  3 (6f9d00aa11)  100 %  4/4 ready  2.84 tokens/step
   └─ retiring  77be44cc55  0 %
      └─ chat-77be-1  terminating

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

└─ lane accelerated
   ├─ stable  4 (a01c22bb33)  95 %  4/4 ready  2.84 tokens/step
   │  └─ evidence  35 requests, last look 12 s ago
   │     ├─ AcceptanceLength  worse ██████░░░░ 1 in 40 of 400  not worse █████░░░░░ 1 in 4 of 20
   │     ├─ ErrorRate         not measured
   │     └─ E2E (dry run)     worse ██████████ 1 in 4,000 of 400  not worse ░░░░░░░░░░ 1 in 1 of 20
   └─ guard  3 (6f9d00aa11)  5 %
      └─ chat-6f9d-1  ready

guard     41 s of 30 s, then 6f9d00aa11 goes, at 10:00:30 UTC, which is over"""


def pod(
    name: str, revision: str = "", *, ready: bool = True, words: str = "ready", **fields: Any
) -> PodView:
    component = "worker" if revision else "gateway"
    return PodView(name, component, revision, ready, words, **fields)


def metric(name: str, worse: float, **fields: Any) -> JudgedMetric:
    base = {"outcome": "Inconclusive", "reason": "AcceptanceWorse", "notWorse": 4.5}
    needs = {"neededWorse": 400, "neededNotWorse": 20, "measured": True, "message": "m"}
    return JudgedMetric.model_validate({"name": name, "worse": worse} | base | needs | fields)


TRIAL = JudgedTrial(
    candidate=CANARY,
    stage="canary",
    began_at=NOW.timestamp() - 90,
    at=NOW.timestamp() - 12,
    candidate_requests=35,
    metrics=(
        metric("AcceptanceLength", 40.0),
        metric("ErrorRate", 1.0, measured=False),
        metric("E2E", 4000.0, dryRun=True, notWorse=1),
    ),
)
PODS = (
    pod("chat-gateway-1"),
    pod("chat-gateway-2", ready=False, words="Unschedulable: no node"),
    pod("chat-6f9d-1", STABLE, acceptance_length=2.851),
    pod("chat-6f9d-2", STABLE, ready=False, words="CrashLoopBackOff, 3 restarts"),
    pod("chat-a01c-1", CANARY),
    pod("chat-0000-1", "0123456789"),
)

CASES = {
    "at rest": (a_resource(), View(), AT_REST),
    "judged": (
        a_resource(canary=canary(observedWeight=0), message="Canary 4 is judged."),
        View(PODS, TRIAL, ("evidence is stale",)),
        JUDGED,
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
        View((pod("chat-77be-1", FAILED, words="terminating", ready=False),)),
        ROLLED_BACK,
    ),
    "shadow": (
        a_resource(
            steps=[{"shadow": {"percent": 10, "durationSeconds": 120}}, {"weight": 5}],
            message="Canary 4 is judged.",
            canary=canary(step=0, weight=0, observedWeight=0, shadow=10),
        ),
        View(()),
        SHADOWED,
    ),
    "guarding": (
        a_resource(
            stable=stable(hash=CANARY, revision=4),
            guard={"revision": 3, "hash": STABLE, "startedAt": START, "weight": 5},
        ),
        View((pod("chat-6f9d-1", STABLE),), TRIAL.model_copy(update={"stage": "guard"})),
        GUARDING,
    ),
}


@pytest.mark.parametrize(("raw", "view", "expected"), CASES.values(), ids=CASES.keys())
def test_tree_is_as_golden(raw: dict[str, Any], view: View, expected: str) -> None:
    assert tree.text(parse(raw), view, NOW, Style()) == expected


def test_a_shared_gateway_is_named() -> None:
    raw = a_resource()
    raw["spec"]["gateway"] = {"mode": "Shared", "shared": {"name": "edge"}}
    gateway = PodView("edge-gateway-1", "gateway", "", True, "ready")
    lines = tree.text(parse(raw), View((gateway,)), NOW, Style()).splitlines()
    assert lines[3:5] == ["├─ gateway edge, shared  1 of 1 ready", "│  └─ edge-gateway-1  ready"]


def test_hundreds_of_pods_are_counted_and_the_bad_ones_shown() -> None:
    many = [pod(f"chat-6f9d-{n:03}", STABLE) for n in range(300)]
    many[200] = pod("chat-6f9d-200", STABLE, ready=False, words="Pending")
    lines = tree.text(parse(a_resource()), View(tuple(many)), NOW, Style()).splitlines()
    assert len(lines) < 20
    assert lines[5] == "      ├─ chat-6f9d-200  Pending"
    assert "      └─ … 292 more, 292 of 292 ready (--all-pods)" in lines
    every = tree.text(parse(a_resource()), View(tuple(many)), NOW, Style(), every_pod=True)
    assert every.count("chat-6f9d-") == 300


def test_a_spec_not_yet_looked_at_is_said() -> None:
    raw = a_resource(observedGeneration=6)
    assert "the newest spec was not looked at yet" in tree.text(parse(raw), View(), NOW, Style())


def test_a_resource_without_status_points_to_the_operator() -> None:
    raw = a_resource()
    del raw["status"]
    shown = tree.text(parse(raw), View(), NOW, Style())
    assert "no revision yet" in shown
    assert "is it running?" in shown


def test_colours_mark_what_needs_a_look_and_nothing_else_changes() -> None:
    raw, view, plain = CASES["judged"]
    coloured = tree.text(parse(raw), view, NOW, Style(color=True))
    assert "\x1b[33mUnschedulable: no node\x1b[0m" in coloured
    assert "worse \x1b[31m██████░░░░\x1b[0m" in coloured
    for code in ("\x1b[31m", "\x1b[32m", "\x1b[33m", "\x1b[0m"):
        coloured = coloured.replace(code, "")
    assert coloured == plain


def test_a_terminal_without_lines_gets_ascii() -> None:
    raw, view, _ = CASES["judged"]
    assert tree.text(parse(raw), view, NOW, Style(ascii=True)).isascii()


def test_nobody_steers_the_terminal_by_a_message() -> None:
    evil = "\x1b]0;owned\x07\x1b[2J\r\u202edaer"
    raw = a_resource(message=evil, failedRevisions=[failed(message=evil)])
    view = View((pod("p" + evil, STABLE, words=evil, ready=False),), None, (evil,))
    shown = tree.text(parse(raw), view, NOW, Style(color=True))
    assert not {"\x07", "\r", "\u202e"} & set(shown)
    assert shown.replace("\x1b[33m", "").replace("\x1b[0m", "").count("\x1b") == 0


@pytest.mark.parametrize(
    ("found", "needed", "full"),
    [
        (0.0, 400, 0),
        (1.0, 400, 0),
        (20.0, 400, 5),
        (400.0, 400, 10),
        (1e9, 400, 10),
        (5.0, 1.0, 10),
    ],
)
def test_a_bar_grows_with_the_logarithm_of_evidence(found: float, needed: float, full: int) -> None:
    assert tree.bar(found, needed) == "█" * full + "░" * (10 - full)


def test_a_follower_is_shown_with_its_leader_and_not_counted() -> None:
    pods = (
        PodView("chat-6f9d-g-0", "worker", STABLE, ready=True, words="ready"),
        PodView("chat-6f9d-g-0-1", "follower", STABLE, ready=False, words="Pending"),
        PodView("chat-0000-g-0", "worker", "0000000000", ready=True, words="ready"),
        PodView("chat-0000-g-0-1", "follower", "0000000000", ready=True, words="ready"),
    )
    found = tree.text(parse(a_resource(stable=stable())), View(pods), NOW, Style(), every_pod=False)
    assert "chat-6f9d-g-0-1  Pending  follower" in found
    assert "lane native  1 of 1 ready" in found
    assert "chat-0000-g-0-1  ready  follower" in found
