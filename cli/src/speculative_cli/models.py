"""Edge: reads the small files of models for `lint --with-models`, and judges them.

`file://` is a folder on this machine, `hf://` a hub, `s3://` a bucket, each with this
person's own credentials.
`pvc://` and `oci://` can't be read from here, and that is said.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Literal

from speculative_api.engine_request import request_of
from speculative_api.memory_estimate import GIBIBYTE
from speculative_api.model_facts import ModelFacts, ModelFiles, Unreadable, facts_of
from speculative_api.model_files import FolderFiles, NotHere, Why
from speculative_api.model_places import remote_files
from speculative_api.preflight import preflight
from speculative_api.v1alpha1 import SpeculativeDeploymentSpec
from speculative_api.validation import Problem


def model_problems(
    spec: SpeculativeDeploymentSpec, *, gpu_gibibytes: float | None, endpoint: str | None = None
) -> Iterator[Problem]:
    """What the models' files say about a spec; a model that can't be read is a warning."""
    draft_source = spec.speculation.draft
    try:
        target = _facts(spec.target.model, endpoint)
        draft = _facts(draft_source.model, endpoint) if draft_source else None
    except NotHere as error:
        yield Problem("warning", "spec.target.model", f"models are not compared: {error}")
        return
    except Unreadable as error:
        yield Problem("error", "spec.target.model", str(error))
        return
    memory = int(gpu_gibibytes * GIBIBYTE) if gpu_gibibytes is not None else None
    for finding in preflight(request_of(spec), target, draft, gpu_bytes=memory):
        severity: Literal["error", "warning"] = (
            "error" if finding.severity == "refuse" else "warning"
        )
        yield Problem(severity, f"spec.{finding.field}", finding.message)


def _facts(source: str, endpoint: str | None) -> ModelFacts:
    files: ModelFiles
    if source.startswith("file://"):
        folder = Path(source.removeprefix("file://"))
        if not folder.is_dir():
            raise NotHere(f"there is no folder {folder} on this machine", Why.ELSEWHERE)
        files = FolderFiles(folder)
    elif found := remote_files(source, endpoint=endpoint):
        files = found
    else:
        raise NotHere(
            f"{source} is on a claim or in an image, which only a pod can read", Why.ELSEWHERE
        )
    try:
        return facts_of(files, source)
    except Unreadable as error:
        raise Unreadable(f"{source}: {error}") from error
