"""Edge: where a model's files are, and what pre-flight wants to know of them.

`file://`, `pvc://` and `oci://` name mounted folders; `hf://` and `s3://` are fetched
into the cache. Everything that can be wrong with a source becomes a `WorkerFailure`.
"""

import asyncio
import contextlib
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from speculative_api.conditions import WorkerReason
from speculative_api.model_facts import ModelFacts, Unreadable, facts_of
from speculative_api.model_files import CLAIM, FolderFiles, NotHere
from speculative_api.model_images import image_of
from speculative_worker.cache import Progress
from speculative_worker.errors import WorkerFailure
from speculative_worker.gpu import gpu_bytes
from speculative_worker.log import log
from speculative_worker.preflight import preflight
from speculative_worker.settings import Settings
from speculative_worker.sources import fetched

_Result = TypeVar("_Result")


@dataclass(frozen=True, slots=True)
class Models:
    """Folders of the models of one worker."""

    target: Path
    draft: Path | None
    adapters: Mapping[str, Path]
    """By name."""
    commits: Mapping[str, str]
    """What each fetched source was resolved to: a hub's commit, a bucket's version."""


def log_only(_: str) -> None:
    """Progress that nobody shows: the log has it anyway."""


async def resolved_models(settings: Settings, progress: Progress = log_only) -> Models:
    """Fetches or finds all models and checks that they fit.

    Args:
        progress: hears how far a download is, from another thread.

    Raises `WorkerFailure`: ModelNotFound, HubUnreachable, DiskTooSmall, or a
    finding of the pre-flight.
    """
    config = settings.config
    draft_source = config.speculation.draft
    commits: dict[str, str] = {}

    def resolve(source: str) -> Path:
        return _resolve(source, settings, commits, progress)

    target = await aside(resolve, config.model)
    draft = await aside(resolve, draft_source.model) if draft_source else None
    target_facts = await aside(_facts, target, config.model)
    draft_facts = (
        await aside(_facts, draft, draft_source.model)
        if draft is not None and draft_source is not None
        else None
    )
    memory = await aside(gpu_bytes)
    notes = preflight(
        config,
        target=target_facts,
        draft=draft_facts,
        gpu_bytes=memory,
        long_context=settings.long_context,
    )
    for note in notes:
        log("preflight", note=note)
    adapters = {
        adapter.name: await aside(_adapter, adapter.model, resolve)
        for adapter in (config.lora.adapters if config.lora else ())
    }
    return Models(target=target, draft=draft, adapters=adapters, commits=commits)


async def aside(work: Callable[..., _Result], *arguments: Any) -> _Result:
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


def _resolve(source: str, settings: Settings, commits: dict[str, str], progress: Progress) -> Path:
    if folder := mounted(source, settings):
        return folder
    found = fetched(source, settings.config.cache_directory, progress)
    if found is None:
        raise unknown(source)
    commits[source] = found.commit
    return found.folder


def mounted(source: str, settings: Settings) -> Path | None:
    """The folder of a model that is mounted into this pod; None for other sources."""
    if source.startswith("file://"):
        return Path(source.removeprefix("file://"))
    if claim := CLAIM.match(source):
        return Path(settings.claims_directory) / claim["claim"] / claim["path"]
    if image := image_of(source):
        return Path(settings.images_directory) / image.mount_name / image.folder
    return None


def unknown(source: str) -> WorkerFailure:
    """A source of no kind that this worker knows."""
    return WorkerFailure(
        WorkerReason.MODEL_NOT_FOUND,
        f"model source {source!r} is not hf://owner/name, s3://bucket/prefix, pvc://claim/path, "
        "file:///path or oci://registry/name",
        retryable=False,
    )


def _adapter(source: str, resolve: Callable[[str], Path]) -> Path:
    folder = resolve(source)
    if not (folder / "adapter_config.json").is_file():
        raise missing(source, f"{folder} has no adapter_config.json, so it is no LoRA adapter")
    return folder


def _facts(folder: Path, source: str) -> ModelFacts:
    if not folder.is_dir():
        raise no_folder(source, folder)
    try:
        return facts_of(FolderFiles(folder), source)
    except (Unreadable, NotHere, OSError) as error:
        raise missing(source, str(error)) from error


def no_folder(source: str, folder: Path) -> WorkerFailure:
    """What should be mounted is not."""
    text = f"there is no folder {folder} in this pod"
    if image_of(source) is not None:
        # Without the feature the API server takes such a pod and leaves volume and mount out.
        text += "; image volumes need Kubernetes 1.35, or 1.33 with the feature gate ImageVolume"
    return missing(source, text)


def missing(source: str, what: str) -> WorkerFailure:
    """A model, or a part of it, that is not there."""
    return WorkerFailure(WorkerReason.MODEL_NOT_FOUND, f"{source}: {what}", retryable=False)
