"""`explain-verdict`: the evidence of the last trial, as the operator wrote it."""

import json
import re
import sys
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from tests.analysis.looks import NEEDED
from tests.builders import a_snapshot
from tests.cli.fake_api import FakeApi, serving
from tests.cli.objects import START, a_resource
from tests.cluster.evidence_of import a_failed_trial

from speculative_api.assessment import JudgedShadow
from speculative_cli import evidence
from speculative_cli.__main__ import main
from speculative_cli.plot import picture
from speculative_cli.resource import parse
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
    assert lines[0].startswith("a01c000000 as canary, 50 % of requests, judged for ")
    assert lines[2].split() == [
        "METRIC",
        "OUTCOME",
        "BLOCKS",
        "WORSE",
        "(NEEDED)",
        "NOT",
        "WORSE",
        "(NEEDED)",
    ]
    assert lines[3].split()[:3] == ["AcceptanceLength", "Failed", "4"]
    assert "1 in 200" in lines[3]
    assert lines[4].split()[:3] == ["ErrorRate", "not", "measured"]
    assert "AcceptanceLength: acceptance length 1.00 tokens per step" in lines[6]
    assert lines[9].endswith("ago: RolledBack (AcceptanceWorse)")
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
    assert found["metrics"][0]["worse"] >= found["metrics"][0]["neededWorse"] == NEEDED


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


def test_the_looks_are_told_one_below_the_other(api: FakeApi, run: Any, capsys: Any) -> None:
    assert run("explain-verdict", "chat") == 0
    lines = capsys.readouterr().out.splitlines()
    start = next(n for n, line in enumerate(lines) if line.startswith("AFTER"))
    assert "AcceptanceLength: WORSE / NOT WORSE" in lines[start]
    assert re.fullmatch(r"\d+ s +50 % of requests +\+\d+ +[\d,]+ / 1 +1 / 1", lines[start + 1])
    assert len(lines) == start + 2


@pytest.mark.parametrize("case", ["absent", "garbled", "of another trial", "of other metrics"])
def test_without_a_course_the_evidence_is_told_all_the_same(
    api: FakeApi, run: Any, capsys: Any, tmp_path: Path, case: str
) -> None:
    data = api.config_maps[0]["data"]
    course = json.loads(data.pop("course.json"))
    if case == "garbled":
        data["course.json"] = '{"points": [{"at": "NaN"}]}'
    elif case == "of another trial":
        data["course.json"] = json.dumps(course | {"beganAt": 1})
    elif case == "of other metrics":
        data["course.json"] = json.dumps(course | {"metrics": ["ErrorRate"]})
    assert run("explain-verdict", "chat", "-o", "json") == 0
    assert json.loads(capsys.readouterr().out)["course"] is None
    assert run("explain-verdict", "chat", "--plot", str(tmp_path / "p.png")) == 3
    assert "kept no course" in capsys.readouterr().err


@pytest.mark.slow
def test_the_plot_is_a_png_with_a_panel_for_each_metric(
    api: FakeApi, run: Any, tmp_path: Path
) -> None:
    file = tmp_path / "plot.png"
    assert run("explain-verdict", "chat", "--plot", str(file)) == 0
    assert file.read_bytes().startswith(b"\x89PNG\r\n\x1a\n")
    raw = api.config_maps[0]
    resource = parse(api.objects["llm/chat"])
    found = evidence.trial(raw, resource)
    course = evidence.course(raw, found)
    assert course is not None
    panels = picture(found, course, resource).axes
    assert [panel.get_title(loc="left") for panel in panels] == [
        "AcceptanceLength: Failed, 4 blocks",
        "ErrorRate: not measured",
        "share of requests",
    ]
    worse, not_worse, needed_worse, needed_not_worse = panels[0].get_lines()
    assert list(worse.get_ydata()) == [max(point.worse[0], 1) for point in course.points]
    assert list(not_worse.get_ydata()) == [max(point.not_worse[0], 1) for point in course.points]
    assert list(needed_worse.get_ydata()) == [found.metrics[0].needed_worse] * 2
    assert list(needed_not_worse.get_ydata()) == [found.metrics[0].needed_not_worse] * 2


@pytest.mark.slow
def test_a_plot_that_can_not_be_written_is_told(run: Any, capsys: Any, tmp_path: Path) -> None:
    assert run("explain-verdict", "chat", "--plot", str(tmp_path / "no" / "plot.png")) == 1
    assert "plot.png can't be written" in capsys.readouterr().err


def test_without_matplotlib_the_extra_is_named(
    run: Any, capsys: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    assert run("explain-verdict", "chat", "--plot", str(tmp_path / "plot.png")) == 1
    assert "pip install 'speculative-cli[plot]'" in capsys.readouterr().err
    assert not (tmp_path / "plot.png").exists()


@pytest.mark.slow
def test_words_of_others_are_no_formulas(api: FakeApi, tmp_path: Path, run: Any) -> None:
    verdict = {"outcome": "RolledBack", "reason": r"$\frac", "message": "m", "at": START}
    api.objects["llm/chat"]["status"]["verdict"] = verdict | {"hash": "a01c000000"}
    assert run("explain-verdict", "chat", "--plot", str(tmp_path / "plot.png")) == 0


@pytest.fixture
def after_shadow(api: FakeApi) -> JudgedShadow:
    """The evidence of a canary that was judged by copies before; returns what is kept of that."""
    snapshot = a_snapshot()
    failed = a_failed_trial()
    by_copies = replace(failed, trial=failed.trial.replace("/canary/", "/shadow/"), weight=20)
    body = config_map(snapshot, by_copies)
    later = replace(snapshot, now=snapshot.now + timedelta(seconds=40))
    body = config_map(later, by_copies, body)
    assert "shadow.json" not in body["data"]
    by_users = replace(failed, began_at=snapshot.now.timestamp() + 60)
    for seconds in (60, 90):
        later = replace(snapshot, now=snapshot.now + timedelta(seconds=seconds))
        body = config_map(later, by_users, body)
    api.config_maps = [body]
    found = evidence.shadow(body, evidence.trial(body, parse(api.objects["llm/chat"])))
    assert found is not None
    return found


def test_what_copies_showed_before_is_told_below(
    api: FakeApi, run: Any, capsys: Any, after_shadow: JudgedShadow
) -> None:
    assert run("explain-verdict", "chat") == 0
    said = capsys.readouterr().out
    below = said.partition("before that, by copies whose answers nobody got:\n")[2].splitlines()
    assert below[0].startswith("a01c000000 as shadow, 20 % copied, judged for ")
    assert below[3].split()[:3] == ["AcceptanceLength", "Failed", "4"]
    assert sum("20 % copied  +" in line for line in below) == 2
    assert run("explain-verdict", "chat", "-o", "json") == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["stage"], found["percent"]) == ("canary", 50)
    assert found["shadow"]["trial"]["percent"] == 20
    assert found["shadow"]["trial"]["metrics"][0]["blocks"] == 4
    assert [point["percent"] for point in found["shadow"]["course"]["points"]] == [20, 20]


@pytest.mark.parametrize("case", ["garbled", "of another candidate"])
def test_a_shadow_that_is_not_this_candidate_s_is_not_told(
    api: FakeApi, run: Any, capsys: Any, after_shadow: JudgedShadow, case: str
) -> None:
    trial = after_shadow.trial.model_copy(update={"candidate": "0123456789"})
    other = after_shadow.model_copy(update={"trial": trial}).model_dump_json(by_alias=True)
    api.config_maps[0]["data"]["shadow.json"] = "{" if case == "garbled" else other
    assert run("explain-verdict", "chat") == 0
    assert "before that" not in capsys.readouterr().out


@pytest.mark.slow
def test_the_plot_has_the_shadow_before_zero(api: FakeApi, after_shadow: JudgedShadow) -> None:
    raw, resource = api.config_maps[0], parse(api.objects["llm/chat"])
    found = evidence.trial(raw, resource)
    course = evidence.course(raw, found)
    assert course is not None
    *panels, share = picture(found, course, resource, shadow=after_shadow).axes
    by_copies = panels[0].get_lines()[4]
    assert list(by_copies.get_xdata()) == [-60, -20]
    copied, of_requests = share.get_lines()
    assert list(copied.get_ydata()) == [20, 20]
    assert list(of_requests.get_ydata()) == [50, 50]
