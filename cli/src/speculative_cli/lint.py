"""`lint`: manifests on disk, checked without a cluster. Reads files; prints nothing."""

import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError

from speculative_api.labels import KIND
from speculative_api.v1alpha1 import SpeculativeDeploymentSpec
from speculative_api.validation import Problem, problems

Judge = Callable[[SpeculativeDeploymentSpec], Iterable[Problem]]


@dataclass(frozen=True, slots=True)
class Finding:
    """A problem and where it is: file, number of the document in it, name of the resource."""

    file: str
    document: int
    resource: str
    problem: Problem

    def line(self) -> str:
        """For people, one line."""
        where = f"{self.file}: {self.resource or f'document {self.document}'}"
        return f"{where}: {self.problem.severity}: {self.problem.field} {self.problem.message}"

    def to_json(self) -> dict[str, Any]:
        """For programs."""
        place = {"file": self.file, "document": self.document, "resource": self.resource}
        return place | asdict(self.problem)


@dataclass(frozen=True, slots=True)
class Report:
    """What all files say."""

    findings: tuple[Finding, ...]
    checked: int
    """SpeculativeDeployments; other kinds are passed over."""

    @property
    def errors(self) -> int:
        """Findings that an API server or the operator would refuse."""
        return sum(found.problem.severity == "error" for found in self.findings)


def lint(files: Sequence[str], judge: Judge | None = None) -> Report:
    """Checks every SpeculativeDeployment in the files; `-` is standard input.

    Args:
        judge: looks further at a spec that can be read.
    """
    findings: list[Finding] = []
    checked = 0
    for file in files:
        try:
            documents = list(_documents(file))
        except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
            unreadable = Problem("error", "file", f"can't be read: {error}")
            findings.append(Finding(file, 0, "", unreadable))
            continue
        for number, document in enumerate(documents, start=1):
            if not isinstance(document, dict) or document.get("kind") != KIND:
                continue
            checked += 1
            name = _name(document)
            found = [*problems(document), *_judged(document, judge)]
            findings += [Finding(file, number, name, problem) for problem in found]
    return Report(tuple(findings), checked)


def _judged(document: dict[str, Any], judge: Judge | None) -> Iterator[Problem]:
    if judge is None:
        return
    try:
        spec = SpeculativeDeploymentSpec.model_validate(document.get("spec"))
    except ValidationError:
        return  # `problems` says why
    yield from judge(spec)


def _documents(file: str) -> Iterator[Any]:
    text = sys.stdin.read() if file == "-" else Path(file).read_text("utf-8")
    for document in yaml.safe_load_all(text):
        if isinstance(document, dict) and document.get("kind") == "List":
            yield from document.get("items") or []
        else:
            yield document


def _name(document: dict[str, Any]) -> str:
    metadata = document.get("metadata")
    if not isinstance(metadata, dict):
        return ""
    namespace, name = metadata.get("namespace"), metadata.get("name")
    return f"{namespace}/{name}" if namespace else str(name or "")
