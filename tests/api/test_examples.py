"""Every example manifest parses, has no finding, and says nothing twice."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from speculative_api import labels
from speculative_api.engine_arguments import findings as engine_findings
from speculative_api.v1alpha1 import SpeculativeDeploymentSpec
from speculative_operator.desired.checks import findings
from speculative_operator.settings import Settings

FILES = sorted((Path(__file__).parents[2] / "examples").glob("*.yaml"))
DOCUMENTS = [
    pytest.param(document, id=f"{file.stem}-{document['metadata']['name']}")
    for file in FILES
    for document in yaml.safe_load_all(file.read_text("utf-8"))
    if document["kind"] == labels.KIND
]


def test_there_are_examples() -> None:
    assert {"smollm2", "simulated", "llama-70b"} <= {file.stem for file in FILES}


@pytest.mark.parametrize("document", DOCUMENTS)
def test_an_example_can_be_rendered(document: dict[str, Any]) -> None:
    assert document["apiVersion"] == f"{labels.GROUP}/{labels.VERSION}"
    spec = SpeculativeDeploymentSpec.model_validate(document["spec"])
    name = document["metadata"]["name"]
    assert findings(spec, name=name, settings=Settings()) == ()
    assert list(engine_findings(spec)) == []


def test_an_example_beginning_with_a_comment_says_what_it_is() -> None:
    assert [file.name for file in FILES if not file.read_text("utf-8").startswith("# ")] == []
