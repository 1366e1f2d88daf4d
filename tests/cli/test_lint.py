"""`lint`: files in, lines and an exit code out; no cluster is asked."""

import io
import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.builders import a_raw_spec

from speculative_cli.__main__ import main

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
    assert out.startswith(f"{path}: llm/chat: error: spec.replica is not a field")
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
