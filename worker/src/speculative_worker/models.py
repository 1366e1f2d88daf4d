"""Edge: where a model's files are, and what pre-flight wants to know of them.

`file://` and `pvc://` name mounted folders; `hf://` is downloaded into the
cache. Everything that can be wrong with a source becomes a `WorkerFailure`.
"""

import asyncio
import contextlib
import os
import re
import tempfile
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeVar

from speculative_api.conditions import WorkerReason
from speculative_api.model_facts import ModelFacts, Unreadable, facts_of
from speculative_worker.errors import WorkerFailure
from speculative_worker.folder import FolderFiles, gpu_bytes
from speculative_worker.log import log
from speculative_worker.preflight import preflight
from speculative_worker.settings import Settings

_Result = TypeVar("_Result")
_HUB: Final = re.compile(r"^hf://(?P<repository>[^/@\s]+/[^/@\s]+)(@(?P<revision>\S+))?$")
_CLAIM: Final = re.compile(r"^pvc://(?P<claim>[a-z0-9.-]+)/(?P<path>\S+)$")
_UNWANTED: Final = ("*.msgpack", "*.h5", "*.onnx", "*.ot", "original/*")
_HUB_REFUSALS: Final = (401, 403, 404)


@dataclass(frozen=True, slots=True)
class Models:
    """Folders of the models of one worker."""

    target: Path
    draft: Path | None
    adapters: Mapping[str, Path]
    """By name."""


async def resolved_models(settings: Settings) -> Models:
    """Fetches or finds both models and checks that they fit.

    Raises `WorkerFailure`: ModelNotFound, HubUnreachable, VocabularyMismatch or
    DraftContextTooShort.
    """
    config = settings.config
    draft_source = config.speculation.draft
    target = await _aside(_resolve, config.model, settings)
    draft = await _aside(_resolve, draft_source.model, settings) if draft_source else None
    target_facts = await _aside(_facts, target, config.model)
    draft_facts = (
        await _aside(_facts, draft, draft_source.model)
        if draft is not None and draft_source is not None
        else None
    )
    memory = await _aside(gpu_bytes)
    for note in preflight(config, target=target_facts, draft=draft_facts, gpu_bytes=memory):
        log("preflight", note=note)
    adapters = {
        adapter.name: await _aside(_adapter, adapter.model, settings)
        for adapter in (config.lora.adapters if config.lora else ())
    }
    return Models(target=target, draft=draft, adapters=adapters)


async def _aside(work: Callable[..., _Result], *arguments: Any) -> _Result:
    """Runs blocking work in a daemon thread.

    Unlike `asyncio.to_thread`, whose thread the interpreter waits for at exit:
    a download that hangs would outlive SIGTERM and the start-up deadline.
    """
    loop = asyncio.get_running_loop()
    outcome: asyncio.Future[_Result] = loop.create_future()

    def settle(error: BaseException | None, result: Any) -> None:
        if outcome.done():
            return
        if error is not None:
            outcome.set_exception(error)
        else:
            outcome.set_result(result)

    def target() -> None:
        error, result = None, None
        try:
            result = work(*arguments)
        except BaseException as caught:  # noqa: BLE001 (carried over to the awaiting task)
            error = caught
        with contextlib.suppress(RuntimeError):  # the loop was closed meanwhile
            loop.call_soon_threadsafe(settle, error, result)

    threading.Thread(target=target, daemon=True, name=work.__name__).start()
    return await outcome


def _resolve(source: str, settings: Settings) -> Path:
    if source.startswith("file://"):
        return Path(source.removeprefix("file://"))
    if claim := _CLAIM.match(source):
        return Path(settings.claims_directory) / claim["claim"] / claim["path"]
    if hub := _HUB.match(source):
        return _downloaded(hub["repository"], hub["revision"], settings.config.cache_directory)
    raise WorkerFailure(
        WorkerReason.MODEL_NOT_FOUND,
        f"model source {source!r} is not hf://owner/name, pvc://claim/path or file:///path",
        retryable=False,
    )


def _adapter(source: str, settings: Settings) -> Path:
    folder = _resolve(source, settings)
    if not (folder / "adapter_config.json").is_file():
        raise _missing(source, f"{folder} has no adapter_config.json, so it is no LoRA adapter")
    return folder


def _downloaded(repository: str, revision: str | None, cache_directory: str | None) -> Path:
    # Imported here: only hub models need it, and it is slow to import.
    from huggingface_hub import errors, snapshot_download

    cache = cache_directory or os.path.join(tempfile.gettempdir(), "models")
    name = f"hf://{repository}" + (f"@{revision}" if revision else "")
    log("download-started", model=name, cache=cache)
    try:
        folder = snapshot_download(
            repository, revision=revision, cache_dir=cache, ignore_patterns=list(_UNWANTED)
        )
    except (errors.HTTPError, OSError) as error:  # type: ignore[attr-defined]
        # HTTPError is that of the HTTP library which this hub version uses, in whatever module;
        # OfflineModeIsEnabled, LocalEntryNotFoundError and socket errors are OSErrors.
        if _hub_status(error) in _HUB_REFUSALS:
            raise _refused(name, error) from error
        raise _unreachable(name, error) from error
    log("download-done", model=name)
    return Path(folder)


def _hub_status(error: BaseException | None) -> int | None:
    """The hub's answer behind an error: the library wraps one in the other."""
    while error is not None:
        status = getattr(getattr(error, "response", None), "status_code", None)
        if isinstance(status, int):
            return status
        error = error.__cause__ or error.__context__
    return None


def _refused(name: str, error: Exception) -> WorkerFailure:
    return WorkerFailure(
        WorkerReason.MODEL_NOT_FOUND,
        f"{name}: the hub does not give it out ({type(error).__name__}); check its name and "
        "revision, accept its terms, and set HF_TOKEN in pod.env from a Secret if it is private",
        retryable=False,
    )


def _unreachable(name: str, error: Exception) -> WorkerFailure:
    first_line = str(error).strip().partition("\n")[0][:300]
    return WorkerFailure(
        WorkerReason.HUB_UNREACHABLE,
        f"{name} cannot be fetched: the hub was not reached from this pod, or is switched off by "
        f"HF_HUB_OFFLINE ({type(error).__name__}: {first_line}); allow egress, set HF_ENDPOINT "
        "to a mirror, or put the model on a claim (pvc://)",
        retryable=True,
    )


def _facts(folder: Path, source: str) -> ModelFacts:
    if not folder.is_dir():
        raise _missing(source, f"there is no folder {folder} in this pod")
    try:
        return facts_of(FolderFiles(folder), source)
    except (Unreadable, OSError) as error:
        raise _missing(source, str(error)) from error


def _missing(source: str, what: str) -> WorkerFailure:
    return WorkerFailure(WorkerReason.MODEL_NOT_FOUND, f"{source}: {what}", retryable=False)
