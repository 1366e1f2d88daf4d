"""`speculative-worker preflight`: a revision's models are judged without a GPU and without weights.

Runs in a Job before any pod of the revision is made. Mounted models are read
where they are, those of a hub or a bucket by HTTP: list, small files, first bytes. Ends
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
from speculative_api.model_files import FolderFiles, NotHere, Why
from speculative_api.model_places import RemoteFiles, cached, pinned, remote_files
from speculative_api.worker import PreflightReport
from speculative_worker import termination
from speculative_worker.bucket_downloads import failure_of
from speculative_worker.cache import too_large
from speculative_worker.cleaning import unused
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
        return PreflightReport(notes=tuple(_notes(settings, models)))
    except NotHere as error:
        if error.why is not Why.HIDDEN:
            raise failure_of(error) from error
        note = f"models are not compared before pods are made: {error}"
        return PreflightReport(notes=(note,))


def _notes(settings: Settings, models: "_Models") -> list[str]:
    config = settings.config
    for adapter in config.lora.adapters if config.lora else ():
        models.require_adapter(adapter.model)
    source = config.speculation.draft
    target = models.facts(config.model)
    draft = models.facts(source.model) if source else None
    models.require_room()
    return preflight(config, target=target, draft=draft, long_context=settings.long_context)


class _Models:
    """Models of one check; where they come from is asked once for each."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._remote: dict[str, RemoteFiles] = {}

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
        if directory is None or not self._remote:
            return
        cache = Path(directory)
        needed = sum(files.missing_bytes(cache) for files in self._remote.values())
        free = shutil.disk_usage(cache).free
        wish = self._settings.clean_up
        if wish is not None and wish.removes:
            # The Job that fetches removes it first.
            free += sum(entry.bytes for entry in unused(cache, wish))
        if needed > free:
            raise too_large(", ".join(self._remote), needed, cache, free)

    def _files(self, source: str) -> FolderFiles | RemoteFiles:
        folder = mounted(source, self._settings)
        if folder is not None:
            return _folder_files(folder, source)
        directory = self._settings.config.cache_directory
        cache = Path(directory) if directory is not None else None
        if cache is not None and (kept := pinned(source, cache)):
            return FolderFiles(kept)
        try:
            return self._asked(source)
        except NotHere as error:
            # As in the pod: with the hub away or switched off the cache may have it all.
            kept = cached(source, cache) if cache is not None else None
            if error.why is not Why.AWAY or kept is None:
                raise
            return FolderFiles(kept)

    def _asked(self, source: str) -> RemoteFiles:
        if source not in self._remote:
            found = remote_files(source)
            if found is None:
                raise unknown(source)
            self._remote[source] = found
        return self._remote[source]


def _folder_files(folder: Path, source: str) -> FolderFiles:
    try:
        there = folder.is_dir()
    except PermissionError:
        raise NotHere(f"{folder} may not be read by user {os.getuid()}", Why.HIDDEN) from None
    if not there:
        raise no_folder(source, folder)
    return FolderFiles(folder)
