"""`explain-verdict`: the evidence of the last trial, as the operator wrote it."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.builders import a_snapshot
from tests.cli.fake_api import FakeApi, serving
from tests.cli.objects import START, a_resource
from tests.cluster.evidence_of import a_failed_trial

from speculative_cli.__main__ import main
from speculative_operator.cluster.evidence import config_map


@pytest.fixture
def api(tmp_path: Path) -> Iterator[FakeApi]:
    snapshot = a_snapshot()
    with serving(FakeApi(config_maps=[config_map(snapshot, a_failed_trial())])) as found:
        found.kubeconfig(tmp_path)
        raw = a_resource()
        raw["metadata"]["uid"] = snapshot.uid
        found.put(raw)
        yield found


@pytest.fixture
def run(api: FakeApi, tmp_path: Path) -> Any:
    def call(*argv: str) -> int:
        return main([*argv, "--kubeconfig", str(tmp_path / "kubeconfig")])

    return call


def test_the_table_tells_evidence_and_need_of_each_metric(
    api: FakeApi, run: Any, capsys: Any
) -> None:
    verdict = {"outcome": "RolledBack", "reason": "AcceptanceWorse", "message": "m", "at": START}
    api.objects["llm/chat"]["status"]["verdict"] = verdict | {"hash": "a01c000000"}
    assert run("explain-verdict", "chat") == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("a01c000000 as canary, judged for ")
    assert lines[2].split() == [
        "METRIC",
        "OUTCOME",
        "WORSE",
        "(NEEDED)",
        "NOT",
        "WORSE",
        "(NEEDED)",
    ]
    assert lines[3].split()[:2] == ["AcceptanceLength", "Failed"]
    assert "1 in 200" in lines[3]
    assert lines[4].split()[:3] == ["ErrorRate", "not", "measured"]
    assert "AcceptanceLength: acceptance length 1.00 tokens per step" in lines[6]
    assert lines[-1].endswith("ago: RolledBack (AcceptanceWorse)")
    assert api.selectors == ["metadata.name=chat-evidence"]


def test_a_verdict_about_another_revision_is_not_told(api: FakeApi, run: Any, capsys: Any) -> None:
    verdict = {"outcome": "Promoted", "reason": "Promoted", "message": "m", "at": START}
    api.objects["llm/chat"]["status"]["verdict"] = verdict | {"hash": "0123456789"}
    assert run("explain-verdict", "chat") == 0
    assert "decided" not in capsys.readouterr().out


def test_as_json(run: Any, capsys: Any) -> None:
    assert run("explain-verdict", "chat", "-o", "json") == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["candidate"], found["stage"]) == ("a01c000000", "canary")
    assert found["metrics"][0]["worse"] >= found["metrics"][0]["neededWorse"] == 200


@pytest.mark.parametrize("case", ["none", "a namesake's", "of an older operator"])
def test_without_evidence_it_says_so(api: FakeApi, run: Any, capsys: Any, case: str) -> None:
    if case == "none":
        api.config_maps.clear()
    elif case == "a namesake's":
        api.config_maps[0]["metadata"]["ownerReferences"][0]["uid"] = "another"
    else:
        del api.config_maps[0]["data"]["assessment.json"]
    assert run("explain-verdict", "chat") == 3
    assert "llm/chat: nothing was judged yet" in capsys.readouterr().err


def test_evidence_of_another_shape_asks_for_another_version(
    api: FakeApi, run: Any, capsys: Any
) -> None:
    api.config_maps[0]["data"]["assessment.json"] = '{"schemaVersion": 2}'
    assert run("explain-verdict", "chat") == 1
    assert "can't read the evidence" in capsys.readouterr().err
