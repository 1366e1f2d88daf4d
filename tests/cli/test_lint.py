"""`lint`: files in, lines and an exit code out; no cluster is asked."""

import io
import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.builders import a_raw_spec

from speculative_cli.__main__ import main
from speculative_cli.documents import documents
from speculative_cli.lint import lint

GOOD = {
    "apiVersion": "speculative.dev/v1alpha1",
    "kind": "SpeculativeDeployment",
    "metadata": {"name": "chat", "namespace": "llm"},
    "spec": a_raw_spec(),
}
BAD = GOOD | {"spec": a_raw_spec(replica=2)}
OTHER = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "llm"}}


def a_file(folder: Path, *documents: Any, name: str = "x.yaml") -> str:
    path = folder / name
    path.write_text(yaml.safe_dump_all(documents))
    return str(path)


def test_a_good_file_ends_with_0(tmp_path: Path, capsys: Any) -> None:
    assert main(["lint", a_file(tmp_path, OTHER, GOOD)]) == 0
    assert capsys.readouterr() == ("", "1 checked, 0 errors\n")


def test_an_error_names_file_resource_and_field_and_ends_with_6(
    tmp_path: Path, capsys: Any
) -> None:
    path = a_file(tmp_path, GOOD, BAD)
    assert main(["lint", path]) == 6
    out, err = capsys.readouterr()
    line = 1 + Path(path).read_text().splitlines().index("  replica: 2")
    assert out.startswith(f"{path}:{line}: llm/chat: error: spec.replica is not a field")
    assert err == "2 checked, 1 errors\n"


def test_a_warning_alone_ends_with_0(tmp_path: Path, capsys: Any) -> None:
    spec = a_raw_spec(speculation={"method": "NGram", "numSpeculativeTokens": 300})
    assert main(["lint", a_file(tmp_path, GOOD | {"spec": spec})]) == 0
    assert ": warning: spec.speculation.numSpeculativeTokens 300 is long" in capsys.readouterr().out


def test_json_has_every_part(tmp_path: Path, capsys: Any) -> None:
    path = a_file(tmp_path, OTHER, BAD)
    assert main(["lint", path, "-o", "json"]) == 6
    (found,) = json.loads(capsys.readouterr().out)
    assert found.pop("message").startswith("is not a field")
    assert found == {
        "file": path,
        "document": 2,
        "resource": "llm/chat",
        "severity": "error",
        "field": "spec.replica",
        "line": 12,
        "column": 3,
    }


def test_items_of_a_list_are_checked(tmp_path: Path) -> None:
    listed = {"apiVersion": "v1", "kind": "List", "items": [GOOD, BAD]}
    assert main(["lint", a_file(tmp_path, listed)]) == 6


@pytest.mark.parametrize("text", [None, "a: [", "a: \x00"], ids=["missing", "broken", "no YAML"])
def test_a_file_that_cannot_be_read_is_an_error(
    tmp_path: Path, capsys: Any, text: str | None
) -> None:
    path = tmp_path / "x.yaml"
    if text is not None:
        path.write_text(text)
    assert main(["lint", str(path)]) == 6
    assert "can't be read" in capsys.readouterr().out


def test_standard_input_is_a_file_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO(yaml.safe_dump(BAD)))
    assert main(["lint", "-"]) == 6


def test_a_bad_file_does_not_hide_the_next(tmp_path: Path, capsys: Any) -> None:
    assert main(["lint", str(tmp_path / "gone"), a_file(tmp_path, GOOD)]) == 6
    assert capsys.readouterr().err == "1 checked, 1 errors\n"


WRITTEN = """\
apiVersion: v1
kind: List
items:
- kind: ResourceList
  items:
  - {kind: Namespace}
  - apiVersion: speculative.dev/v1alpha1
    kind: SpeculativeDeployment
    metadata: {name: chat}
    spec:
      target: {model: "file:///m"}
      speculation:
        method: NGram
        numSpeculativeTokens: "4"
      rollout:
        steps:
        - weight: 5
        - pause: {durationSeconds: 60}
          weight: 10
      replica: 2
"""
LINES = {
    "spec.speculation.numSpeculativeTokens": (14, 9),
    "spec.rollout.steps.1": (18, 11),
    "spec.rollout.steps[1]": (18, 11),
    "spec.replica": (20, 7),
    "spec.gateway.replicas": (10, 5),
    "apiVersion": (7, 5),
}


@pytest.mark.parametrize(("field", "place"), LINES.items())
def test_a_field_is_found_where_it_or_the_nearest_above_it_stands(
    tmp_path: Path, field: str, place: tuple[int, int]
) -> None:
    path = tmp_path / "x.yaml"
    path.write_text(WRITTEN)
    *_, document = documents(str(path))
    found = document.place(field)
    assert (document.number, found.line, found.column) == (2, *place)


def test_sarif_names_rule_level_file_and_line(
    tmp_path: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a b.yaml").write_text(WRITTEN)
    assert main(["lint", "a b.yaml", str(tmp_path / "gone"), "-o", "sarif"]) == 6
    log = json.loads(capsys.readouterr().out)
    assert log["version"] == "2.1.0"
    (ran,) = log["runs"]
    rules = [rule["id"] for rule in ran["tool"]["driver"]["rules"]]
    assert len(rules) == len(set(rules))
    for result in ran["results"]:
        assert result["level"] in ("error", "warning")
        assert rules[result["ruleIndex"]] == result["ruleId"]
        assert not re.search(r"\d", result["ruleId"]), "an index is no rule"
        (location,) = result["locations"]
        assert location["physicalLocation"]["region"]["startLine"] >= 1
    places = [found["locations"][0]["physicalLocation"] for found in ran["results"]]
    assert places[0] == {
        "artifactLocation": {"uri": "a%20b.yaml"},
        "region": {"startLine": 20, "startColumn": 7},
    }
    assert places[-1]["artifactLocation"]["uri"] == (tmp_path / "gone").as_uri()


def test_sarif_of_good_files_is_an_empty_run(tmp_path: Path, capsys: Any) -> None:
    assert main(["lint", a_file(tmp_path, GOOD), "-o", "sarif"]) == 0
    assert json.loads(capsys.readouterr().out)["runs"][0]["results"] == []


def test_a_folder_is_read_whole_and_in_order(tmp_path: Path, capsys: Any) -> None:
    (tmp_path / "deep").mkdir()
    for name in ("b.yaml", "a.yml", "deep/c.json", "README.md"):
        a_file(tmp_path, BAD, name=name)
    (tmp_path / "deep" / "c.json").write_text(json.dumps(BAD, indent="\t"))
    assert main(["lint", str(tmp_path)]) == 6
    out, err = capsys.readouterr()
    named = [Path(line.partition(":")[0]).name for line in out.splitlines()]
    assert named == ["a.yml", "b.yaml", "c.json"]
    assert err == "3 checked, 3 errors\n"


REFUSED = {
    "a key twice": ("spec: 1\nmetadata: 2\nspec: 3\n", ":3: ", "says spec twice"),
    "itself": ("a: &a\n  b: *a\n", ":1: ", "contains itself"),
    "aliases without end": (
        "".join(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9) if n else 'x'}]\n" for n in range(9)),
        ":1: ",
        "with its aliases unfolded",
    ),
    "too deep": ("[" * 5000, ":1: ", "nested too deeply"),
    "broken in line 3": ("a: 1\nb: 2\nc: [\n", ":4: ", "can't be read"),
    "no date": ("a: 2026-99-99\n", ":1: ", "can't be read"),
}


@pytest.mark.parametrize(("text", "line", "said"), REFUSED.values(), ids=REFUSED.keys())
def test_what_nobody_means_is_refused_with_its_line(
    tmp_path: Path, capsys: Any, text: str, line: str, said: str
) -> None:
    path = tmp_path / "x.yaml"
    path.write_text(text)
    assert main(["lint", str(path)]) == 6
    out = capsys.readouterr().out
    assert out.startswith(f"{path}{line}")
    assert said in out


def test_what_came_before_a_broken_document_is_checked(tmp_path: Path, capsys: Any) -> None:
    path = tmp_path / "x.yaml"
    path.write_text(yaml.safe_dump(BAD) + "---\na: [\n")
    assert main(["lint", str(path)]) == 6
    assert capsys.readouterr().err == "1 checked, 2 errors\n"


ODD = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | st.dates(),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["spec", "metadata", "name", "target", "model", "rollout", "steps", "1"]
            ),
            inner,
            max_size=3,
        )
    ),
    max_leaves=12,
)


@given(ODD, ODD)
@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_no_document_ends_it_otherwise_than_by_a_finding(
    tmp_path: Path, spec: Any, metadata: Any
) -> None:
    document = GOOD | {"spec": spec, "metadata": metadata}
    assert lint([a_file(tmp_path, document)]).errors >= 1
