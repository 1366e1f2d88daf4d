"""One worker from start to exit; the way through the rest of the package.

Checking (models, pre-flight), Loading (engine), Warming, Serving; Draining on
SIGTERM; Failed on a `WorkerFailure`, which becomes the termination message.
"""

import asyncio
import contextlib
import os
import re
import signal
import sys
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Final

from speculative_api.conditions import WorkerReason
from speculative_worker import engine as engines
from speculative_worker import termination
from speculative_worker.adapting import prepare
from speculative_worker.certificate import Certificate
from speculative_worker.classify import engine_failure
from speculative_worker.drain import drain
from speculative_worker.engine import Engine, EngineEnded
from speculative_worker.engine_client import EngineClient, EngineSilent
from speculative_worker.errors import WorkerFailure
from speculative_worker.heartbeat import Heartbeat
from speculative_worker.log import log
from speculative_worker.probes import ProbeServer
from speculative_worker.progress import Sample, kept_samples, stall
from speculative_worker.settings import Settings, process_environment
from speculative_worker.state import Phase, WorkerState
from speculative_worker.warmup import warm_up

_FIRST_HEALTH_LOOK_SECONDS: Final = 0.03
_HEALTH_LOOK_SECONDS: Final = 0.25
"""Looks come closer together at first: a simulated engine is up in a fraction of a second."""
_COMPILING: Final = re.compile(
    r"dynamo bytecode transform|compiling (a|the) graph|torch\.compile takes|graph capturing"
    r"|capturing [^.]{0,40}cuda ?graph",
    re.IGNORECASE,
)
"""Lines of vllm/compilation/backends.py and v1/worker/gpu_model_runner.py (0.9 to 0.32)."""
EXIT_FAILED: Final = 1


async def run(settings: Settings) -> int:
    """Runs one worker to its end; the process's exit code."""
    async with EngineClient(settings.engine_url) as client:
        worker = Worker(settings, client)
        return await worker.run()


class Worker:
    """Holds what belongs to one run: state, engine, signals."""

    def __init__(self, settings: Settings, client: EngineClient) -> None:
        self._settings = settings
        self._client = client
        self._started = time.monotonic()
        self._state = WorkerState(engine_started_at=time.time())
        self._engine: Engine | None = None
        self._certificate: Certificate | None = None
        self._silence: str | None = None
        """The heartbeat's own rule, as long as none was answered since."""
        self._stop = asyncio.Event()
        self._kills_before = engines.out_of_memory_kills()

    async def run(self) -> int:
        """Serves until a signal or a failure; the exit code."""
        self._listen_for_signals()
        probes = ProbeServer(self._settings, self._state, self._client)
        await probes.start()
        try:
            await self._serve_until_stopped()
        except WorkerFailure as failure:
            return await self._fail(failure)
        finally:
            if self._engine is not None:
                self._engine.kill()
            if self._certificate is not None:
                self._certificate.discard()
            await probes.close()
        log("exit", code=0)
        return 0

    async def _serve_until_stopped(self) -> None:
        serving = asyncio.create_task(self._serve())
        stopped = asyncio.create_task(self._stop.wait())
        try:
            await asyncio.wait({serving, stopped}, return_when=asyncio.FIRST_COMPLETED)
            if serving.done():
                serving.result()
            await self._shut_down(serving)
        finally:
            for task in (serving, stopped):
                task.cancel()
            await asyncio.gather(serving, stopped, return_exceptions=True)

    async def _serve(self) -> None:
        """Starts everything and watches it; ends only by a failure or by being cancelled."""
        deadline_seconds = self._settings.config.startup_deadline_seconds
        timeout = asyncio.timeout(deadline_seconds - (time.monotonic() - self._started))
        try:
            async with timeout:
                engine = await self._start()
        except TimeoutError:
            if not timeout.expired():
                raise
            raise self._startup_timeout(deadline_seconds) from None
        self._enter(Phase.SERVING)
        self._state.was_ready = True
        await self._watch(engine)

    async def _start(self) -> Engine:
        tls = self._settings.config.tls
        self._certificate = Certificate(tls) if tls is not None else None
        command = await self._command()
        self._enter(Phase.LOADING)
        engine = await self._start_engine(command)
        try:
            await engine.while_alive(asyncio.create_task(self._wait_until_healthy()))
            self._enter(Phase.WARMING)
            await engine.while_alive(
                asyncio.create_task(warm_up(self._client, self._settings.config))
            )
        except EngineEnded:
            raise await self._engine_failure(engine) from None
        return engine

    async def _command(self) -> list[str]:
        config = self._settings.config
        if config.simulation is not None:
            return [sys.executable, "-m", "speculative_worker", "simulate"]
        # Imported here: a worker over a simulated engine starts without them, in half the time.
        from speculative_worker.arguments import engine_command
        from speculative_worker.models import resolved_models

        loop = asyncio.get_running_loop()
        models = await resolved_models(
            self._settings, lambda text: _in(loop, self._downloading, text)
        )
        self._state.commits = dict(models.commits)
        return engine_command(
            config,
            target_path=str(models.target),
            draft_path=str(models.draft) if models.draft else None,
            port=self._settings.engine_port,
            host=self._settings.host,
            tls_folder=str(self._certificate.folder) if self._certificate else None,
            adapter_paths={name: str(path) for name, path in models.adapters.items()},
            node=self._settings.node,
        )

    def _downloading(self, text: str) -> None:
        if self._state.phase is Phase.CHECKING:
            self._enter(Phase.DOWNLOADING)
        if self._state.phase is Phase.DOWNLOADING:
            self._state.phase_detail = text

    async def _start_engine(self, command: list[str]) -> Engine:
        method = self._settings.config.speculation.method
        environment = engines.environment_for(method, process_environment())
        if self._certificate is not None:
            environment = {**environment, "ENGINE_TLS_FOLDER": str(self._certificate.folder)}
        try:
            self._state.adapting = prepare(self._settings.config)
            if self._state.adapting is not None:
                environment = self._state.adapting.environment(self._settings.config, environment)
            engine = await engines.start(
                command, environment=environment, now=time.time(), observer=self._see
            )
        except OSError as error:
            raise WorkerFailure(
                WorkerReason.ENGINE_CRASHED,
                f"the engine cannot be started: {error}",
                retryable=True,
            ) from error
        self._engine = engine
        self._state.engine_alive = True
        self._state.engine_started_at = engine.started_at
        log("engine-started", pid=engine.pid, arguments=" ".join(command[1:]))
        return engine

    def _see(self, line: str) -> None:
        """A line of the engine's output: compiling and capturing take minutes, and are said."""
        if self._state.phase is Phase.LOADING and _COMPILING.search(line):
            self._enter(Phase.COMPILING)

    async def _wait_until_healthy(self) -> None:
        pause_seconds = _FIRST_HEALTH_LOOK_SECONDS
        while not await self._client.is_healthy():
            await asyncio.sleep(pause_seconds)
            pause_seconds = min(1.3 * pause_seconds, _HEALTH_LOOK_SECONDS)

    async def _watch(self, engine: Engine) -> None:
        progress = asyncio.create_task(self._watch_progress())
        beside = [asyncio.create_task(self._beat()), asyncio.create_task(self._stamp_models())]
        if self._certificate is not None:
            beside.append(asyncio.create_task(self._certificate.follow()))
        try:
            await engine.while_alive(progress)
        except EngineEnded:
            raise await self._engine_failure(engine) from None
        finally:
            for task in beside:
                task.cancel()
            await asyncio.gather(*beside, return_exceptions=True)

    async def _stamp_models(self) -> None:
        """Says in the cache, now and then, that these models are in use."""
        directory = self._settings.config.cache_directory
        if directory is None or not self._state.commits:
            return
        # Imported here: a worker over a simulated engine has no models.
        from speculative_worker.uses import STAMP_SECONDS, stamp

        while True:
            # At once, too: since they were fetched, loading may have taken an hour.
            for source, commit in self._state.commits.items():
                await asyncio.to_thread(stamp, Path(directory), source, commit)
            await asyncio.sleep(STAMP_SECONDS)

    async def _beat(self) -> None:
        config = self._settings.config
        if config.heartbeat_seconds == 0:
            return
        heartbeat = Heartbeat(
            self._client,
            model=config.served_model_name,
            period_seconds=config.heartbeat_seconds,
        )
        self._state.without_heartbeats = heartbeat.without
        await heartbeat.run(self._heard)

    def _heard(self, silence: str | None) -> None:
        self._silence = silence
        if silence is not None:
            self._stalled(silence)

    def _stalled(self, rule: str) -> None:
        if self._state.stalled_since is None:
            self._state.stall = rule
            self._state.stalled_since = time.monotonic()
            log("stalled", rule=rule)

    async def _watch_progress(self) -> None:
        """Looks at the engine's progress for ever, and notes stalls and their end."""
        period_seconds = self._settings.sample_seconds
        samples: deque[Sample] = deque(maxlen=kept_samples(period_seconds))
        while True:
            try:
                samples.append(await self._client.load())
            except EngineSilent:
                samples.append(None)
            found = stall(list(samples), period_seconds=period_seconds) or self._silence
            if found:
                self._stalled(found)
            elif not found and self._state.stalled_since is not None:
                self._state.stalled_since = None
                log("stall-ended")
            await asyncio.sleep(period_seconds)

    async def _shut_down(self, serving: asyncio.Task[None]) -> None:
        """Drains and ends the engine. Raises `WorkerFailure` if it was stalled or crashes."""
        engine = self._engine
        if self._state.was_ready and self._state.stalled_since is None:
            self._enter(Phase.DRAINING)
            waiting = asyncio.create_task(
                drain(
                    self._open_requests,
                    follow_seconds=self._settings.follow_seconds,
                    drain_seconds=self._settings.config.drain_seconds,
                    is_hopeless=lambda: self._state.stalled_since is not None,
                )
            )
            await asyncio.wait({waiting, serving}, return_when=asyncio.FIRST_COMPLETED)
            if not waiting.done():
                waiting.cancel()
                serving.result()
            log("drained", idle=waiting.result())
        serving.cancel()
        if engine is not None:
            await engine.stop(within_seconds=self._settings.engine_exit_seconds)
        if self._state.stalled_since is not None:
            raise WorkerFailure(WorkerReason.STALLED, self._state.stall, retryable=True)

    async def _open_requests(self) -> int | None:
        try:
            loads = await self._client.load()
        except EngineSilent:
            return None
        return sum(load.running + load.waiting for load in loads.values()) if loads else None

    async def _engine_failure(self, engine: Engine) -> WorkerFailure:
        code = await engine.wait()
        self._state.engine_alive = False
        return engine_failure(
            engine.tail,
            exit_code=code,
            served=self._state.was_ready,
            out_of_memory_kill=engines.out_of_memory_kills() > self._kills_before,
        )

    def _startup_timeout(self, deadline_seconds: int) -> WorkerFailure:
        tail = self._engine.tail if self._engine else ""
        return WorkerFailure(
            WorkerReason.STARTUP_TIMEOUT,
            f"not ready after {deadline_seconds} s (phase {self._state.phase}); raise "
            f"engine.startupDeadlineSeconds if the model is merely slow. Last output of the "
            f"engine:\n{tail[-1024:]}",
            retryable=False,
        )

    async def _fail(self, failure: WorkerFailure) -> int:
        self._state.phase = Phase.FAILED
        text = termination.message(failure, secrets=self._settings.secrets)
        log("failed", reason=failure.reason.value, retryable=failure.retryable)
        print(text, file=sys.stderr, flush=True)
        try:
            termination.write(text, self._settings.termination_path)
        except OSError as error:
            log("termination-not-written", error=error)
        if self._engine is not None and self._engine.is_alive:
            await self._engine.stop(within_seconds=self._settings.engine_exit_seconds)
        return EXIT_FAILED

    def _enter(self, phase: Phase) -> None:
        self._state.phase = phase
        self._state.phase_detail = ""
        log("phase", phase=phase.value, seconds=time.monotonic() - self._started)

    def _listen_for_signals(self) -> None:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._stop.set)
        if os.getpid() == 1:
            loop.add_signal_handler(signal.SIGCHLD, self._reap)

    def _reap(self) -> None:
        # Before the engine's pid is known, its own status could be taken away from asyncio.
        if self._engine is not None:
            engines.reap_orphans(keep=self._engine.pid)


def _in(loop: asyncio.AbstractEventLoop, call: Callable[[str], None], text: str) -> None:
    """Calls in the event loop's thread; nothing where the loop is over."""
    with contextlib.suppress(RuntimeError):
        loop.call_soon_threadsafe(call, text)
