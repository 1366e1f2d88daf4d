"""Edge: reads the small files of models for `lint --with-models`, and judges them.

`file://` is a folder on this machine, `hf://` a hub, asked by HTTP for its list
of files, for small files, and for the first bytes of large ones: no weights are
fetched. `pvc://` can't be read from here, and that is said.
"""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final, Literal

from speculative_api.engine_request import request_of
from speculative_api.memory_estimate import GIBIBYTE
from speculative_api.model_facts import ModelFacts, ModelFiles, Unreadable, facts_of
from speculative_api.preflight import preflight
from speculative_api.v1alpha1 import SpeculativeDeploymentSpec
from speculative_api.validation import Problem

_HUB: Final = re.compile(r"^hf://(?P<repository>[^/@\s]+/[^/@\s]+)(@(?P<revision>\S+))?$")
_TEXT_BYTES: Final = 64 * 2**20
"""Longest small file that is fetched; a large tokenizer has some twenty mebibytes."""


class NotHere(Exception):
    """The model can't be read from this machine; the message says why."""


class FolderFiles:
    """`ModelFiles` over a folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        if not folder.is_dir():
            raise NotHere(f"there is no folder {folder} on this machine")

    def sizes(self) -> Mapping[str, int]:
        """Bytes of every file in the folder itself."""
        return {path.name: path.stat().st_size for path in self._folder.iterdir() if path.is_file()}

    def text(self, name: str) -> str:
        """A small file as text. Raises `Unreadable`."""
        return self.head(name, _TEXT_BYTES).decode(errors="replace")

    def head(self, name: str, size: int) -> bytes:
        """The first bytes of a file. Raises `Unreadable`."""
        try:
            with (self._folder / name).open("rb") as file:
                return file.read(size)
        except OSError as error:
            raise Unreadable(f"{self._folder / name}: {error.strerror}") from error


class HubFiles:
    """`ModelFiles` over a hub, at one revision; HF_ENDPOINT and HF_TOKEN count."""

    def __init__(self, repository: str, revision: str | None, *, endpoint: str | None) -> None:
        # Imported here: only hub models need it, and it is slow to import.
        from huggingface_hub import HfApi, constants, errors

        self._repository = repository
        self._endpoint = endpoint or constants.ENDPOINT
        try:
            found = HfApi(endpoint=self._endpoint).model_info(
                repository, revision=revision, files_metadata=True, timeout=30
            )
        except (errors.HTTPError, OSError) as error:  # type: ignore[attr-defined]
            first_line = str(error).strip().partition("\n")[0][:200]
            raise NotHere(
                f"hf://{repository}: {type(error).__name__}: {first_line}; check its name, its "
                "terms, HF_TOKEN and HF_ENDPOINT"
            ) from error
        # Everything is read at one commit, whatever moves meanwhile.
        self._revision = found.sha or revision
        self._sizes = {file.rfilename: file.size or 0 for file in found.siblings or ()}

    def sizes(self) -> Mapping[str, int]:
        """Bytes of every file at the top of the repository."""
        return {name: size for name, size in self._sizes.items() if "/" not in name}

    def text(self, name: str) -> str:
        """A small file as text. Raises `Unreadable`."""
        return self._get(name, _TEXT_BYTES).decode(errors="replace")

    def head(self, name: str, size: int) -> bytes:
        """The first bytes of a file, by a range request. Raises `Unreadable`."""
        return self._get(name, size)

    def _get(self, name: str, size: int) -> bytes:
        from huggingface_hub import errors, hf_hub_url
        from huggingface_hub.utils import build_hf_headers, get_session, hf_raise_for_status  # type: ignore[attr-defined]

        if name not in self._sizes:
            raise Unreadable(f"{name} does not exist")
        url = hf_hub_url(self._repository, name, revision=self._revision, endpoint=self._endpoint)
        headers = build_hf_headers() | {"Range": f"bytes=0-{max(0, size - 1)}"}
        found = b""
        try:
            with get_session().stream("GET", url, headers=headers, timeout=60) as answer:
                hf_raise_for_status(answer)
                for piece in answer.iter_bytes():
                    found += piece
                    # A hub that takes no ranges sends all of it: the rest is not read.
                    if len(found) >= size:
                        break
        except (errors.HTTPError, OSError) as error:  # type: ignore[attr-defined]
            raise Unreadable(f"{name}: {type(error).__name__}") from error
        return found[:size]


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
        files = FolderFiles(Path(source.removeprefix("file://")))
    elif hub := _HUB.match(source):
        files = HubFiles(hub["repository"], hub["revision"], endpoint=endpoint)
    else:
        raise NotHere(f"{source} is on a claim, which only a pod can read")
    try:
        return facts_of(files, source)
    except Unreadable as error:
        raise Unreadable(f"{source}: {error}") from error
