"""`speculative-worker preflight`: a revision's models are judged without a GPU and without weights.

Runs in a Job before any pod of the revision is made. Mounted models are read
where they are, those of a hub by HTTP: list, small files, first bytes. Ends
with a `PreflightReport`, or with the `Termination` of a worker that found the
same; the exit code tells Kubernetes whether another attempt can help.
"""

import os
import shutil
import signal
from pathlib import Path
from typing import Final, NoReturn

from speculative_api.conditions import WorkerReason
from speculative_api.model_facts import ModelFacts, Unreadable, facts_of
from speculative_api.model_files import HUB, FolderFiles, HubFiles, NotHere, Why, cached_folder
from speculative_api.worker import PreflightReport, WorkerConfig
from speculative_worker import termination
from speculative_worker.downloads import too_large
from speculative_worker.errors import WorkerFailure
from speculative_worker.log import log
from speculative_worker.models import missing, mounted, no_folder, unknown
from speculative_worker.preflight import preflight
from speculative_worker.settings import Settings

EXIT_REFUSED: Final = 3
"""It can never pass; the operator tells the Job not to try again."""
EXIT_RETRYABLE: Final = 1
LIMIT_SECONDS: Final = 300
"""Longest check: a few mebibytes of each model, over a slow line."""
_ADAPTER: Final = "adapter_config.json"


def run_check(settings: Settings) -> int:
    """Checks, writes the last words, and gives the exit code."""
    signal.signal(signal.SIGALRM, _too_long)
    signal.alarm(LIMIT_SECONDS)
    try:
        report = checked(settings)
    except WorkerFailure as failure:
        log("refused", reason=failure.reason.value, retryable=failure.retryable)
        text = termination.message(failure, secrets=settings.secrets)
        print(text, flush=True)
        termination.write(text, settings.termination_path)
        return EXIT_RETRYABLE if failure.retryable else EXIT_REFUSED
    finally:
        signal.alarm(0)
    text = termination.report(report.notes, secrets=settings.secrets)
    log("passed", notes=len(report.notes))
    termination.write(text, settings.termination_path)
    return 0


def _too_long(*_: object) -> NoReturn:
    raise WorkerFailure(
        WorkerReason.HUB_UNREACHABLE,
        f"the files of the models were not read within {LIMIT_SECONDS} s",
        retryable=True,
    )


def checked(settings: Settings) -> PreflightReport:
    """What often disappoints.

    Raises `WorkerFailure`: ModelNotFound, HubUnreachable, DiskTooSmall, or a
    finding of the pre-flight.
    """
    config = settings.config
    if config.simulation is not None:
        return PreflightReport()
    models = _Models(settings)
    try:
        return PreflightReport(notes=tuple(_notes(config, models)))
    except NotHere as error:
        if error.why is not Why.HIDDEN:
            raise _failure(error) from error
        note = f"models are not compared before pods are made: {error}"
        return PreflightReport(notes=(note,))


def _notes(config: WorkerConfig, models: "_Models") -> list[str]:
    for adapter in config.lora.adapters if config.lora else ():
        models.require_adapter(adapter.model)
    source = config.speculation.draft
    target = models.facts(config.model)
    draft = models.facts(source.model) if source else None
    models.require_room()
    return preflight(config, target=target, draft=draft)


def _failure(error: NotHere) -> WorkerFailure:
    away = error.why is Why.AWAY
    reason = WorkerReason.HUB_UNREACHABLE if away else WorkerReason.MODEL_NOT_FOUND
    return WorkerFailure(reason, str(error), retryable=away)


class _Models:
    """Models of one check; a hub is asked once for each."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._hubs: dict[str, HubFiles] = {}

    def facts(self, source: str) -> ModelFacts:
        """Raises `NotHere` or `WorkerFailure`."""
        try:
            return facts_of(self._files(source), source)
        except (Unreadable, OSError) as error:
            raise missing(source, str(error)) from error

    def require_adapter(self, source: str) -> None:
        """Raises `WorkerFailure` for what is no LoRA adapter."""
        if _ADAPTER not in self._files(source).sizes():
            raise missing(source, f"it has no {_ADAPTER}, so it is no LoRA adapter")

    def require_room(self) -> None:
        """Raises `WorkerFailure` where the cache has no room for all that is to be fetched."""
        directory = self._settings.config.cache_directory
        if directory is None or not self._hubs:
            return
        cache = Path(directory)
        needed = sum(hub.missing_bytes(cache) for hub in self._hubs.values())
        free = shutil.disk_usage(cache).free
        if needed > free:
            raise too_large(", ".join(self._hubs), needed, cache, free)

    def _files(self, source: str) -> FolderFiles | HubFiles:
        folder = mounted(source, self._settings)
        if folder is not None:
            return _folder_files(folder, source)
        found = HUB.match(source)
        if found is None:
            raise unknown(source)
        try:
            if source not in self._hubs:
                self._hubs[source] = HubFiles(found["repository"], found["revision"])
            return self._hubs[source]
        except NotHere as error:
            # As in the pod: with the hub away or switched off the cache may have it all.
            kept = self._cached(found["repository"], found["revision"])
            if error.why is not Why.AWAY or kept is None:
                raise
            return FolderFiles(kept)

    def _cached(self, repository: str, revision: str | None) -> Path | None:
        directory = self._settings.config.cache_directory
        return cached_folder(repository, revision, Path(directory)) if directory else None


def _folder_files(folder: Path, source: str) -> FolderFiles:
    try:
        there = folder.is_dir()
    except PermissionError:
        raise NotHere(f"{folder} may not be read by user {os.getuid()}", Why.HIDDEN) from None
    if not there:
        raise no_folder(source, folder)
    return FolderFiles(folder)
