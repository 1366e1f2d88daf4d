"""`speculative-worker download`: models come into the cache before a pod holds a GPU.

Runs in a Job, after the check. The same download as in a pod, so that files which
are whole are not fetched again and whoever comes later waits file by file; then
every file is held against the checksums of where it came from. How far it is stands
in the digest, which is served meanwhile. Ends with a `PreflightReport` or with the
`Termination` of a worker; the exit code tells Kubernetes whether another attempt can help.
"""

import asyncio
import contextlib
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

from speculative_api.model_sources import is_fetched
from speculative_api.worker import PreflightReport, WorkerConfig
from speculative_worker import termination
from speculative_worker.cache import Downloaded
from speculative_worker.checking import EXIT_REFUSED, EXIT_RETRYABLE
from speculative_worker.cleaning import clean
from speculative_worker.engine_client import EngineClient
from speculative_worker.errors import WorkerFailure
from speculative_worker.log import log
from speculative_worker.models import aside
from speculative_worker.probes import ProbeServer
from speculative_worker.settings import Settings
from speculative_worker.sources import fetched, verified
from speculative_worker.state import Phase, WorkerState


def run_download(settings: Settings) -> int:
    """Fetches all, writes the last words, and gives the exit code."""
    try:
        report = asyncio.run(_fetched(settings))
    except WorkerFailure as failure:
        log("failed", reason=failure.reason.value, retryable=failure.retryable)
        text = termination.message(failure, secrets=settings.secrets)
        print(text, flush=True)
        termination.write(text, settings.termination_path)
        return EXIT_RETRYABLE if failure.retryable else EXIT_REFUSED
    termination.write(
        termination.report(report.notes, secrets=settings.secrets), settings.termination_path
    )
    return 0


async def _fetched(settings: Settings) -> PreflightReport:
    """What came, a sentence for each model. Raises `WorkerFailure`."""
    # A download's thread can't be ended: on SIGTERM the process goes; whole files stay.
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, os._exit, EXIT_RETRYABLE)
    state = WorkerState(engine_started_at=time.time(), phase=Phase.DOWNLOADING)
    async with EngineClient(settings.engine_url) as client:
        probes = ProbeServer(settings, state, client)
        await probes.start()
        try:
            notes = await _cleaned(settings)
            for source in fetched_models(settings.config):
                notes.append(await _fetch(source, settings, state))
        finally:
            await probes.close()
    return PreflightReport(notes=tuple(notes))


async def _cleaned(settings: Settings) -> list[str]:
    """First, so that there is room; never a reason to fail."""
    if settings.clean_up is None or settings.config.cache_directory is None:
        return []
    found: list[str] = await aside(clean, Path(settings.config.cache_directory), settings.clean_up)
    return found


async def _fetch(source: str, settings: Settings, state: WorkerState) -> str:
    loop = asyncio.get_running_loop()

    def progress(text: str) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is over
            loop.call_soon_threadsafe(setattr, state, "phase_detail", f"{source}: {text}"[:256])

    cache = settings.config.cache_directory
    found: Downloaded | None = await aside(fetched, source, cache, progress)
    if found is None:
        raise ValueError(f"{source} is not fetched")
    progress("held against the checksums of where it came from")
    count = await aside(verified, source, found, cache)
    state.commits = {**state.commits, source: found.commit}
    log("download-verified", model=source, files=count)
    return f"{source} is in the cache at {found.commit or 'unknown'}, {count} files verified"


def fetched_models(config: WorkerConfig) -> Iterator[str]:
    """Sources that are fetched, each once."""
    draft, lora = config.speculation.draft, config.lora
    adapters = [adapter.model for adapter in lora.adapters] if lora else []
    named = [config.model, *([draft.model] if draft else []), *adapters]
    yield from (source for source in dict.fromkeys(named) if is_fetched(source))
