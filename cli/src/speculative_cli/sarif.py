"""Findings of `lint` as SARIF 2.1.0, which code hosts and editors show beside the line. Pure.

A rule is a field, so that it can be suppressed as one.
Source: https://docs.oasis-open.org/sarif/sarif/v2.1.0/sarif-v2.1.0.html
"""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

from .lint import Finding

SCHEMA: Final = (
    "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
)
_INDEX: Final = re.compile(r"\[\d+\]|\.\d+(?=\.|$)")


def log_of(findings: Sequence[Finding]) -> dict[str, Any]:
    """The SARIF log of one run."""
    rules = list(dict.fromkeys(_rule(found) for found in findings))
    return {
        "$schema": SCHEMA,
        "version": "2.1.0",
        "runs": [
            {
                "tool": {
                    "driver": {
                        "name": "kubectl-speculative",
                        "rules": [
                            {"id": rule, "shortDescription": {"text": f"Problem with {rule}"}}
                            for rule in rules
                        ],
                    }
                },
                "columnKind": "unicodeCodePoints",
                "results": [_result(found, rules) for found in findings],
            }
        ],
    }


def _rule(found: Finding) -> str:
    return _INDEX.sub("", found.problem.field)


def _result(found: Finding, rules: list[str]) -> dict[str, Any]:
    place = found.place
    return {
        "ruleId": _rule(found),
        "ruleIndex": rules.index(_rule(found)),
        "level": found.problem.severity,
        "message": {"text": f"{found.problem.field} {found.problem.message}"},
        "locations": [
            {
                "physicalLocation": {
                    "artifactLocation": {"uri": _uri(found.file)},
                    "region": {"startLine": place.line, "startColumn": place.column},
                },
                "logicalLocations": [
                    {
                        "fullyQualifiedName": " ".join(
                            part for part in (found.resource, found.problem.field) if part
                        )
                    }
                ],
            }
        ],
    }


def _uri(file: str) -> str:
    if file == "-":
        return "stdin"
    path = Path(file)
    return path.as_uri() if path.is_absolute() else quote(path.as_posix())
