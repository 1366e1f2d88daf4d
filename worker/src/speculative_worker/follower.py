"""A worker that is one of a group's pods and not its leader: an engine without an API.

It counts as started when its engine runs, for only the leader knows whether the
whole serves. On SIGTERM it keeps its part of the engine until the leader has drained
and ended: whoever deletes the pods of a group does so in no order.
"""

import asyncio
import json
import time
from dataclasses import dataclass
from typing import Final

from speculative_worker.engine import Engine
from speculative_worker.engine_client import EngineClient
from speculative_worker.http_client import HttpClient, HttpError
from speculative_worker.log import log
from speculative_worker.settings import Settings
from speculative_worker.state import Phase
from speculative_worker.supervisor import Worker

LOOK_SECONDS: Final = 0.5
"""Between two looks at a leader that is to end."""
WATCH_SECONDS: Final = 5.0
"""Between two looks at a leader that serves: only which one it is has to be known."""
ANSWER_SECONDS: Final = 2.0
_SILENT_LOOKS: Final = 4
"""A leader that does not answer so often in turn has ended."""
DELETED_SECONDS: Final = 30.0
"""An engine that ended with its leader: so long until this pod is deleted, as groups are."""
ENGINE_END_SECONDS: Final = 5.0
"""For an engine whose leader has ended; inside the margin of the pod's grace period."""


async def follow(settings: Settings) -> int:
    """Runs one follower to its end; the process's exit code."""
    address = settings.node.leader if settings.node is not None else ""
    leader = Leader(HttpClient(address, settings.leader_port))
    async with EngineClient(settings.engine_url) as client:
        try:
            return await Follower(settings, client, leader).run()
        finally:
            await leader.close()


@dataclass(frozen=True, slots=True)
class Sight:
    """What the leader's worker says of itself."""

    engine_started_at: float
    """Tells a leader from its successor of the same name."""
    phase: str


class Leader:
    """The group's leader, asked at its worker port."""

    def __init__(self, http: HttpClient) -> None:
        self._http = http

    async def look(self) -> Sight | None:
        """What it says; None where it does not answer."""
        try:
            _, body = await self._http.get("/digest", seconds=ANSWER_SECONDS)
            digest = json.loads(body)
            return Sight(float(digest["engineStartedAt"]), str(digest["phase"]))
        except (HttpError, ValueError, KeyError, TypeError, RecursionError):
            return None

    async def close(self) -> None:
        """Gives its connection up."""
        await self._http.close()


class Follower(Worker):
    """One run of a follower."""

    def __init__(self, settings: Settings, client: EngineClient, leader: Leader) -> None:
        super().__init__(settings, client)
        self._leader = leader
        self._served: Sight | None = None
        """The leader as it was last seen to serve."""

    async def _start(self) -> Engine:
        command = await self._command()
        self._enter(Phase.LOADING)
        return await self._start_engine(command)

    async def _watch(self, engine: Engine) -> None:
        watching = asyncio.create_task(self._watch_leader())
        try:
            await engine.wait()
        finally:
            watching.cancel()
            await asyncio.gather(watching, return_exceptions=True)
        failure = await self._engine_failure(engine)
        sight = await self._leader.look()
        if sight is None or sight.phase in (Phase.DRAINING, Phase.FAILED):
            # The leader's last words say why; ours would only cover them.
            log("engine-ended-with-leader", reason=failure.reason.value)
            await asyncio.sleep(DELETED_SECONDS)
        raise failure

    async def _watch_leader(self) -> None:
        while True:
            sight = await self._leader.look()
            if sight is not None and sight.phase == Phase.SERVING:
                self._served = sight
            await asyncio.sleep(WATCH_SECONDS)

    async def _shut_down(self, serving: asyncio.Task[None]) -> None:
        engine = self._engine
        if engine is not None and engine.is_alive and self._state.was_ready:
            self._enter(Phase.DRAINING)
            waiting = asyncio.create_task(self._outlive_leader())
            await asyncio.wait({waiting, serving}, return_when=asyncio.FIRST_COMPLETED)
            waiting.cancel()
            await asyncio.gather(waiting, return_exceptions=True)
        serving.cancel()
        await asyncio.gather(serving, return_exceptions=True)
        if engine is not None:
            await engine.stop(within_seconds=ENGINE_END_SECONDS)

    async def _outlive_leader(self) -> None:
        """Waits until the leader that served has ended; no longer than its drain may take."""
        settings = self._settings
        patience = settings.follow_seconds + settings.config.drain_seconds
        deadline = time.monotonic() + patience + settings.engine_exit_seconds
        silent = 0
        while silent < _SILENT_LOOKS and time.monotonic() < deadline:
            sight = await self._leader.look()
            silent = silent + 1 if sight is None else 0
            if sight is not None and self._served is None and sight.phase == Phase.SERVING:
                self._served = sight
            if sight is not None and not self._is_mine(sight):
                break
            await asyncio.sleep(LOOK_SECONDS)
        log("leader-ended", seconds=patience + time.monotonic() - deadline)

    def _is_mine(self, sight: Sight) -> bool:
        """Whether this is the leader that served, and not one that has nothing to drain."""
        return self._served is not None and (
            sight.engine_started_at == self._served.engine_started_at
        )
