"""`lint`: manifests on disk, checked without a cluster. Reads files; prints nothing."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from pydantic import ValidationError

from speculative_api.labels import KIND
from speculative_api.v1alpha1 import SpeculativeDeploymentSpec
from speculative_api.validation import Problem, problems

from .documents import Document, Place, Unreadable, documents, files_of

Judge = Callable[[SpeculativeDeploymentSpec], Iterable[Problem]]


@dataclass(frozen=True, slots=True)
class Finding:
    """A problem and where it is: file, line, number of the document, name of the resource."""

    file: str
    document: int
    resource: str
    problem: Problem
    place: Place = field(default_factory=Place)

    def line(self) -> str:
        """For people, one line."""
        where = f"{self.file}:{self.place.line}: {self.resource or f'document {self.document}'}"
        return f"{where}: {self.problem.severity}: {self.problem.field} {self.problem.message}"

    def to_json(self) -> dict[str, Any]:
        """For programs."""
        place = {"file": self.file, "document": self.document, "resource": self.resource}
        return place | asdict(self.place) | asdict(self.problem)


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
    """Checks every SpeculativeDeployment in files and folders; `-` is standard input.

    Args:
        judge: looks further at a spec that can be read.
    """
    findings: list[Finding] = []
    checked = 0
    for file in files_of(files):
        try:
            for document in documents(file):
                if isinstance(document.body, dict) and document.body.get("kind") == KIND:
                    checked += 1
                    findings += _findings(file, document, judge)
        except Unreadable as error:
            unreadable = Problem("error", "file", str(error))
            findings.append(Finding(file, 0, "", unreadable, Place(error.line)))
    return Report(tuple(findings), checked)


def _findings(file: str, document: Document, judge: Judge | None) -> Iterator[Finding]:
    body, name = document.body, _name(document.body)
    for problem in (*problems(body), *_judged(body, judge)):
        yield Finding(file, document.number, name, problem, document.place(problem.field))


def _judged(document: dict[str, Any], judge: Judge | None) -> Iterator[Problem]:
    if judge is None:
        return
    try:
        spec = SpeculativeDeploymentSpec.model_validate(document.get("spec"))
    except ValidationError:
        return  # `problems` says why
    yield from judge(spec)


def _name(document: dict[str, Any]) -> str:
    metadata = document.get("metadata")
    if not isinstance(metadata, dict):
        return ""
    namespace, name = metadata.get("namespace"), metadata.get("name")
    return f"{namespace}/{name}" if namespace else str(name or "")
