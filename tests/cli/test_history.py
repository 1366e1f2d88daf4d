"""list, history, diff and undo: what they show, what they write, what they refuse."""

import json
import re
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from tests.cli.fake_api import FakeApi, serving
from tests.cli.objects import START, a_resource, canary, failed, stable

from speculative_api.labels import CHANGE_CAUSE, RENDER, REVISION
from speculative_api.revisions import canonical_words, native_hash, native_words_of, words_hash
from speculative_api.v1alpha1 import SpeculativeDeploymentSpec
from speculative_cli.__main__ import main
from speculative_cli.revisions import differences, merge_patch

UID = "0b7f6f9e"
TARGET = {"model": "file:///m"}


def words(k: int, **more: Any) -> dict[str, Any]:
    spec = {"target": TARGET, "speculation": {"method": "NGram", "numSpeculativeTokens": k}}
    return canonical_words(SpeculativeDeploymentSpec.model_validate(spec | more))


HASHES = {k: words_hash(words(k)) for k in (2, 3, 4, 5)}


def a_revision(number: int, said: dict[str, Any], *, cause: str = "", uid: str = UID) -> Any:
    hash_ = words_hash(said)
    annotations = {"annotations": {CHANGE_CAUSE: cause}} if cause else {}
    return {
        "metadata": {
            "name": f"chat-{hash_}",
            "labels": {REVISION: hash_},
            "creationTimestamp": START,
            "ownerReferences": [
                {
                    "uid": uid,
                    "controller": True,
                    "apiVersion": "speculative.dev/v1alpha1",
                    "kind": "SpeculativeDeployment",
                    "name": "chat",
                }
            ],
        }
        | annotations,
        "revision": number,
        "data": {"spec": said, "template": {}},
    }


def a_native(number: int, said: dict[str, Any]) -> Any:
    found = a_revision(number, native_words_of(said))
    found["metadata"]["labels"][REVISION] = native_hash(said)
    return found


@pytest.fixture
def api(tmp_path: Path) -> Iterator[FakeApi]:
    revisions = [
        a_revision(3, words(4), cause="longer drafts\nticket 12"),
        a_revision(1, words(2, engine={"maxNumSeqs": 8})),
        a_revision(2, words(3)),
        a_native(3, words(4)),
        a_revision(9, words(5), uid="a namesake before it"),
    ]
    with serving(FakeApi(revisions=revisions)) as found:
        found.kubeconfig(tmp_path)
        yield found


@pytest.fixture
def run(api: FakeApi, tmp_path: Path) -> Any:
    def call(*argv: str) -> int:
        return main([*argv, "--kubeconfig", str(tmp_path / "kubeconfig")])

    return call


def chat(k: int = 4, **status: Any) -> dict[str, Any]:
    """Asks for `k`; stable is revision 3, k = 4, unless said otherwise."""
    raw = a_resource(**({"stable": stable(hash=HASHES[4])} | status))
    raw["metadata"] |= {"uid": UID, "resourceVersion": "77"}
    raw["spec"]["speculation"]["numSpeculativeTokens"] = k
    return raw


def test_history_shows_numbers_states_and_causes(api: FakeApi, run: Any, capsys: Any) -> None:
    api.put(chat(failedRevisions=[failed(HASHES[3])]))
    assert run("history", "chat") == 0
    lines = [re.split(r"\s{2,}", line) for line in capsys.readouterr().out.splitlines()]
    assert [(line[0], line[1], *line[3:]) for line in lines[1:]] == [
        ("1", words_hash(words(2, engine={"maxNumSeqs": 8})), "-", "-"),
        ("2", HASHES[3], "failed AcceptanceWorse", "-"),
        ("3", HASHES[4], "stable", "longer drafts"),
    ]
    assert api.selectors == ["speculative.dev/name=chat"]


@pytest.mark.parametrize("name", ["1", words_hash(words(2, engine={"maxNumSeqs": 8}))[:6]])
def test_history_of_one_prints_its_words(api: FakeApi, run: Any, capsys: Any, name: str) -> None:
    api.put(chat())
    assert run("history", "chat", "--revision", name) == 0
    out = capsys.readouterr().out
    assert "maxNumSeqs: 8\n" in out
    assert out.startswith("# revision 1 (")


def test_history_as_json(api: FakeApi, run: Any, capsys: Any) -> None:
    api.put(chat())
    assert run("history", "chat", "-o", "json") == 0
    found = json.loads(capsys.readouterr().out)
    assert [entry["revision"] for entry in found] == [1, 2, 3]
    assert found[2]["cause"] == "longer drafts\nticket 12"
    assert found[2]["words"] == words(4)


@pytest.mark.parametrize(
    "names, expected",
    [
        (
            ["1", "3"],
            ["engine.maxNumSeqs: 8 -> (default)", "speculation.numSpeculativeTokens: 2 -> 4"],
        ),
        (["3", "spec"], ["speculation.numSpeculativeTokens: 4 -> 5"]),
        (["2", "2"], ["2 and 2 say the same"]),
    ],
)
def test_diff_goes_field_by_field(
    api: FakeApi, run: Any, capsys: Any, names: list[str], expected: list[str]
) -> None:
    api.put(chat(k=5))
    assert run("diff", "chat", *names) == 0
    assert capsys.readouterr().out.splitlines() == expected


def test_a_block_that_is_new_is_shown_with_its_fields() -> None:
    assert differences({}, {"pod": {"env": [1], "shmSize": "1Gi"}}) == [
        "pod.env: (default) -> [1]",
        "pod.shmSize: (default) -> '1Gi'",
    ]


UNDONE = {
    "to the one before": (chat(), [], 3),
    "to stable, when the spec failed": (chat(k=5, failedRevisions=[failed(HASHES[5])]), [], 4),
    "to stable, when a canary is tried": (chat(k=5, canary=canary(hash=HASHES[5])), [], 4),
    "past one that failed": (chat(failedRevisions=[failed(HASHES[3])]), [], 2),
    "to the kept one under guard": (
        chat(guard={"revision": 2, "hash": HASHES[3], "startedAt": START, "weight": 5}),
        [],
        3,
    ),
    "to a number": (chat(), ["--to", "1"], 2),
}


@pytest.mark.parametrize(("raw", "argv", "k"), UNDONE.values(), ids=UNDONE.keys())
def test_undo_makes_the_spec_ask_for_an_earlier_revision(
    api: FakeApi, run: Any, raw: Any, argv: list[str], k: int
) -> None:
    api.put(json.loads(json.dumps(raw)))
    assert run("undo", "chat", *argv) == 0
    spec = api.objects["llm/chat"]["spec"]
    assert spec["speculation"]["numSpeculativeTokens"] == k
    assert spec["rollout"] == raw["spec"]["rollout"]
    (patch,) = api.patches
    assert patch["metadata"]["resourceVersion"] == "77"


def test_undo_takes_away_what_was_added_and_keeps_the_cause(api: FakeApi, run: Any) -> None:
    raw = chat(k=5)
    raw["metadata"]["annotations"] = {CHANGE_CAUSE: "an experiment", "other": "x"}
    raw["spec"]["pod"] = {"shmSize": "1Gi"}
    raw["spec"]["engine"] = {"maxNumSeqs": 8, "drainSeconds": 120}
    api.put(raw)
    assert run("undo", "chat") == 0
    found = api.objects["llm/chat"]
    asked = canonical_words(SpeculativeDeploymentSpec.model_validate(found["spec"]))
    assert words_hash(asked) == HASHES[4]
    assert found["metadata"]["annotations"] == {
        CHANGE_CAUSE: "longer drafts\nticket 12",
        "other": "x",
    }


REFUSED = {
    "failed before": (
        chat(failedRevisions=[failed(HASHES[3])]),
        ["undo", "--to", "2"],
        r"failed at .* AcceptanceWorse: 1.02 is less than 2.56\n.*retry chat -n llm --hash",
    ),
    "unknown": (chat(), ["undo", "--to", "17"], "no stored revision is called '17'; stored are: 1"),
    "of the native lane": (chat(), ["undo", "--to", native_hash(words(4))], "no stored revision"),
    "nothing before": (chat(k=5, stable=None), ["undo", "--to", HASHES[5]], "no stored revision"),
    "unknown in diff": (chat(), ["diff", "1", "17"], "no stored revision"),
}


@pytest.mark.parametrize(("raw", "argv", "said"), REFUSED.values(), ids=REFUSED.keys())
def test_what_cannot_be_is_refused_and_nothing_is_written(
    api: FakeApi, run: Any, capsys: Any, raw: Any, argv: list[str], said: str
) -> None:
    api.put(raw)
    assert run(argv[0], "chat", *argv[1:]) == 4
    assert re.search(said, capsys.readouterr().err)
    assert api.patches == []


LEAVING = [{"hash": HASHES[5], "since": START}]
BACK = {
    "hash": HASHES[5],
    "outcome": "Superseded",
    "reason": "Superseded",
    "message": "the spec went back to the stable revision",
    "at": START,
}
GUARD = {"revision": 3, "hash": HASHES[4], "startedAt": START, "weight": 5}
DONE = {
    "to a number, already so": (chat(), ["--to", "3"], "asks for revision 3 .* already"),
    "again, not acted on yet": (chat(canary=canary(hash=HASHES[5])), [], HASHES[5]),
    "again, on its way out": (chat(retiring=LEAVING, verdict=BACK), [], "--to"),
    "again, under guard": (chat(stable=stable(hash=HASHES[5]), guard=GUARD), [], HASHES[5]),
}


@pytest.mark.parametrize(("raw", "argv", "said"), DONE.values(), ids=DONE.keys())
def test_undo_twice_goes_back_once(
    api: FakeApi, run: Any, capsys: Any, raw: Any, argv: list[str], said: str
) -> None:
    api.put(raw)
    assert run("undo", "chat", *argv) == 0
    assert re.search(f"nothing to do: .*{said}", capsys.readouterr().out)
    assert api.patches == []


@pytest.mark.parametrize("argv", [["history", "chat"], ["history", "chat", "--revision", "3"]])
def test_a_cause_steers_no_terminal(api: FakeApi, run: Any, capsys: Any, argv: list[str]) -> None:
    api.revisions[0]["metadata"]["annotations"][CHANGE_CAUSE] = "mine\x1b[2J"
    api.put(chat())
    assert run(*argv) == 0
    assert "mine\\x1b[2J" in capsys.readouterr().out


def test_words_of_a_failure_steer_no_terminal(api: FakeApi, run: Any, capsys: Any) -> None:
    api.put(chat(failedRevisions=[failed(HASHES[3], message="worse\x1b[2J")]))
    assert run("undo", "chat", "--to", "2") == 4
    assert "worse\\x1b[2J" in capsys.readouterr().err


def test_undo_without_an_earlier_revision_is_refused(api: FakeApi, run: Any, capsys: Any) -> None:
    api.revisions = api.revisions[:1]
    api.put(chat())
    assert run("undo", "chat") == 4
    assert "no earlier revision is stored" in capsys.readouterr().err


def test_list_shows_one_line_each(api: FakeApi, run: Any, capsys: Any) -> None:
    api.put(chat(canary=canary(), message="x" * 200))
    elsewhere = chat()
    elsewhere["metadata"]["namespace"] = "other"
    api.put(elsewhere)
    assert run("list") == 0
    head, line = capsys.readouterr().out.splitlines()
    assert head.startswith("NAME ")
    assert re.match(rf"chat  3 \({HASHES[4]}\)  4/4    2.84 +4 \(a01c22bb33\)  50 % +x+…$", line)
    assert run("list", "-A") == 0
    assert len(capsys.readouterr().out.splitlines()) == 3
    assert run("list", "-A", "-o", "json") == 0
    assert len(json.loads(capsys.readouterr().out)) == 2


def test_an_empty_list_says_so(api: FakeApi, run: Any, capsys: Any) -> None:
    assert run("list") == 0
    assert capsys.readouterr().err == "no SpeculativeDeployment in namespace llm\n"


def test_a_merge_patch_holds_only_what_differs() -> None:
    live = {"a": {"b": 1, "c": [1]}, "d": 2, "e": {"f": 1}}
    wanted = {"a": {"b": 1, "c": [2]}, "d": 2, "g": {"h": 1}}
    assert merge_patch(live, wanted) == {"a": {"c": [2]}, "e": None, "g": {"h": 1}}


def test_a_revision_rendered_anew_is_one_revision(api: FakeApi, run: Any, capsys: Any) -> None:
    anew = a_revision(3, words(4), cause="longer drafts")
    anew["metadata"]["name"] += "-r1"
    anew["metadata"]["annotations"][RENDER] = "1"
    anew["metadata"]["creationTimestamp"] = "2026-11-30T12:00:00Z"
    api.revisions.insert(0, anew)
    api.put(chat())
    assert run("history", "chat", "-o", "json") == 0
    found = json.loads(capsys.readouterr().out)
    assert [record["revision"] for record in found] == [1, 2, 3]
    assert datetime.fromisoformat(found[2]["createdAt"]) == datetime.fromisoformat(START)


def test_a_resource_that_can_not_be_read_hides_no_other(
    api: FakeApi, run: Any, capsys: Any
) -> None:
    garbled = chat(canary={"revision": "x"})
    garbled["metadata"]["name"] = "garbled"
    api.put(garbled)
    api.put(chat())
    assert run("list") == 0
    out, err = capsys.readouterr()
    assert "chat" in out
    assert "llm/garbled: this version of kubectl-speculative can't read" in err
