"""The agent: keeps Envoy on the newest good route and says what Envoy really uses.

In: a `Source`. Out: Envoy's dynamic files through the `Applier`, and HTTP
(`serving`). It may die at any moment: Envoy serves on, and the next agent
adopts what is on disk without touching it. Run as `python -m
speculative_gateway agent`.
"""

import asyncio
import contextlib
import logging
import os
import signal
import time
from pathlib import Path

import aiohttp
from aiohttp import web

from speculative_api import gateway

from . import storage
from .admin import Admin, Life
from .applier import Applier, Superseded
from .credentials import Credentials
from .errors import EnvoySlow, EnvoyUnreachable, ReadbackMismatch
from .holding import Holdings, taking
from .kubernetes import Cluster, FromKubernetes
from .many_routes import ManyRoutes
from .serving import serving
from .settings import Settings
from .source import FromDirectory, Observation, Source
from .state import Sample, States, metrics, named, never_falling, passed_on
from .wants import OneRoute, Wants

_log = logging.getLogger("speculative_gateway.agent")

LOOK_SECONDS = 1.0
"""Between looks at Envoy's start time while nothing changes."""
VERIFY_SECONDS = 5.0
"""Between full comparisons with Envoy while nothing changes."""
RETRY_SECONDS = 5.0
"""After Envoy did not take a step."""
CACHE_SECONDS = 1.0
"""Age up to which `/state` answers from the last reading."""
LEAVE_SECONDS = 3.0
"""After SIGTERM: how long Envoy may look alive, or be gone, before the agent leaves."""
SLOW_SECONDS = 30.0
"""An Envoy that was verified and is late with its answers is still trusted to serve for so long:
taking every gateway out of the Service because the machine is busy would refuse all users."""
STALL_SECONDS = 60.0
"""A loop that has not turned for this long is not alive."""
NO_CERTIFICATE = (
    "no certificate is in use: the Secret of gateway.tls needs tls.crt and the tls.key that fits it"
)


class Agent:
    """One loop around one Envoy."""

    def __init__(self, settings: Settings, admin: Admin) -> None:
        self._settings = settings
        self._admin = admin
        self._applier = Applier(admin, settings.xds)
        self._applied_file = settings.directory / storage.APPLIED_FILE
        credentials = Credentials(settings)
        self._issuers = credentials.issuers
        form = ManyRoutes if settings.shared_gateway else OneRoute
        self._wants: Wants = form(settings, credentials)
        self.holdings = Holdings(admin.hosts)
        self._adopt()
        self.holdings.follow(self._wants.routes)
        self._observation: Observation | None = None
        self._wake = asyncio.Event()
        self._used_since: Life | None = None
        """The life of Envoy in which the route was read back."""
        self._life: Life | None = None
        """The life of Envoy that answered in this turn."""
        self._verified_at = 0.0
        self._answered_at = 0.0
        self._retry_at = 0.0
        self._mismatch = ""
        """What Envoy did not take, until it takes the next."""
        self._locked: frozenset[str] = frozenset()
        """Members that let in nobody, see `Wanted.locked`: from when that is wanted until Envoy
        was seen to use the keys that came."""
        self._uncertified = settings.tls_directory is not None
        """TLS is asked for and Envoy has loaded no certificate."""
        self._stopping = False
        self._turned_at = time.monotonic()
        self._sampling = asyncio.Lock()
        self._sample: tuple[float, States] | None = None
        self._counted: States = {}
        """The last reading, however old."""
        self._changes = 0
        """How often another route came into use: a reading from before says nothing about it."""

    @property
    def ready(self) -> bool:
        """A route that lets somebody in is used by the Envoy that runs now; nobody stops us."""
        return self._used_since is not None and not self._closed

    @property
    def _closed(self) -> bool:
        """Nobody would get an answer here, or should not ask any more."""
        return "" in self._locked or self._stopping or self._uncertified

    @property
    def alive(self) -> bool:
        """The loop turns."""
        return time.monotonic() - self._turned_at < STALL_SECONDS

    def changed(self, observation: Observation) -> None:
        """Takes the newest observation."""
        self._observation = observation
        self._retry_at = 0.0
        self._wake.set()

    def stop(self) -> None:
        """Begins to leave: not ready, and gone once Envoy is or turns out to stay."""
        self._stopping = True
        self._wake.set()

    async def follow_issuers(self, session: aiohttp.ClientSession) -> None:
        """Fetches issuers' keys for ever, while a route names where."""
        await self._issuers.follow(session, self._wake.set)

    async def run(self) -> None:
        """Turns until told to stop."""
        while not self._stopping:
            await self._turn()
        told_at = last_draining = time.monotonic()
        deadline = told_at + self._settings.drain_seconds
        while time.monotonic() < min(deadline, last_draining + LEAVE_SECONDS):
            # The operator still asks a draining gateway what it holds.
            life = await self._turn()
            if life is not None and life.draining:
                last_draining = time.monotonic()

    async def _turn(self) -> Life | None:
        self._turned_at = time.monotonic()
        self._wake.clear()
        self._life = None
        try:
            await self._keep()
        except EnvoySlow as error:
            _log.warning("envoy is slow: %s", error)
            if time.monotonic() > self._answered_at + SLOW_SECONDS:
                self._used_since = None
        except EnvoyUnreachable as error:
            if self._used_since is not None:
                _log.warning("envoy is away: %s", error)
            self._used_since = None
            self._applier.begin_life()
        except Superseded:
            return self._life
        except OSError as error:
            # A full disk, mostly. Envoy serves on with what it has; a later look finds room again.
            _log.error("can't write for envoy: %s", error)
            self._mismatch = f"the gateway's files can't be written: {error}"
            self._retry_at = time.monotonic() + RETRY_SECONDS
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._wake.wait(), LOOK_SECONDS)
        return self._life

    async def _meet(self) -> None:
        """Asks, once in a turn, which life of Envoy answers: before anything is read back from it,
        and after what is newly wanted was written, since an abort is to wait for no question."""
        if self._life is not None:
            return
        self._life = await self._admin.life()
        self._answered_at = time.monotonic()
        if self._used_since is not None and self._used_since.started_at != self._life.started_at:
            _log.info("envoy has a new life")
            self._used_since = None
            self._applier.begin_life()

    async def _keep(self) -> None:
        """One look: decide, apply what differs, verify."""
        now = time.monotonic()
        if self._used_since is None:
            await self._meet()
        observation, on_disk = self._observation, self._applier.on_disk()
        wanted = self._wants.wanted(observation, on_disk)
        self._locked |= wanted.locked
        same = not wanted.is_new and on_disk == wanted.configuration
        if same or now < self._retry_at:
            await self._meet()
        if same and self._used_since is not None and now < self._verified_at + VERIFY_SECONDS:
            return
        if now < self._retry_at:
            return
        try:
            await self._applier.apply(
                wanted.configuration,
                meet=self._meet,
                superseded=lambda: self._observation is not observation,
            )
        except ReadbackMismatch as mismatch:
            self._mismatch = str(mismatch)
            if self._wants.failed():
                self._wake.set()
            else:
                self._retry_at = time.monotonic() + RETRY_SECONDS
            return
        if self._settings.tls_directory is not None:
            self._uncertified = await self._admin.certificates() == 0
        self._verified_at = now
        self._locked = wanted.locked
        self._mismatch = ""
        if not wanted.is_known:
            return
        self._used_since = self._life
        if wanted.is_new:
            storage.write(self._applied_file, self._wants.took())
            self.holdings.follow(self._wants.routes)
            self._changes += 1
            self._sample = None

    def _adopt(self) -> None:
        """Takes what an earlier agent of this pod applied."""
        try:
            self._wants.adopt(self._applied_file.read_text())
        except FileNotFoundError:
            return
        except ValueError as error:
            _log.warning("applied.json is not usable: %s", error)

    async def state(self, member: str = "") -> gateway.GatewayState:
        """What Envoy uses, read since the last change and at most a second ago; requests that
        found no worker are known at once, for who heard of a wake comes for them.

        Args:
            member: whose part of a shared gateway; empty: all there is.

        Raises:
            EnvoyUnreachable: it can't be asked.
        """
        states = await self._states()
        found = states.get(member)
        if found is None:
            # Nothing of it is in use here.
            found = states[""].model_copy(update={"clusters": (), "ready": False})
        return found.model_copy(update={"activity": self.holdings.activity(member)})

    async def _states(self) -> States:
        async with self._sampling:
            while self._sample is None or time.monotonic() > self._sample[0] + CACHE_SECONDS:
                now, changes = time.monotonic(), self._changes
                sample = await self._read()
                if changes == self._changes:
                    states = self._by_member(sample)
                    self._counted = {
                        name: never_falling(each, self._counted.get(name))
                        for name, each in states.items()
                    }
                    self._sample = (now, self._counted)
            return self._sample[1]

    async def woken(self, request: web.Request) -> web.Response:
        """Answers when somebody asks something of a worker, see `Holding.woken`."""
        return await self.holdings.woken(request)

    async def metrics(self) -> str:
        """The state and Envoy's own figures, in Prometheus' text format.

        Raises:
            EnvoyUnreachable: it can't be asked.
        """
        states = await self._states()
        return metrics(states) + passed_on(await self._admin.figures(), states, self._names())

    async def _read(self) -> Sample:
        life = await self._admin.life()
        sample = Sample(
            started_at=life.started_at,
            taken_at=time.time(),
            runtime=await self._admin.runtime(),
            routes=await self._admin.routes(),
            hosts=await self._admin.hosts(),
            statistics=await self._admin.statistics(),
        )
        if (await self._admin.life()).started_at != life.started_at:
            raise EnvoyUnreachable("Envoy was restarted during the reading")
        return sample

    def _names(self) -> dict[str, dict[str, str]]:
        """Of members: their revisions by their name in Envoy."""
        return {name: dict(share.names or {}) for name, share in self._wants.shares().items()}

    def _by_member(self, sample: Sample) -> States:
        """One state of each member, and under an empty name one of all there is."""
        used = self._used_since
        seen = used is not None and used.started_at == sample.started_at
        clusters = sample.clusters()
        shares = self._wants.shares()
        self.holdings.note(sample.started_at, "", clusters)
        for name, share in shares.items():
            if name:
                self.holdings.note(sample.started_at, name, named(clusters, share.names))
        whole = gateway.GatewayState(
            pod=self._settings.pod,
            envoy_started_at=sample.started_at,
            sampled_at=sample.taken_at,
            ready=seen and not self._closed,
            clusters=clusters,
            error=self._mismatch or (NO_CERTIFICATE if self._uncertified else ""),
        )
        return {"": whole} | {
            name: whole.model_copy(
                update={
                    "owner_uid": share.owner_uid if seen else "",
                    "sequence": share.sequence if seen else -1,
                    "ready": whole.ready and share.sequence >= 0 and name not in self._locked,
                    "clusters": named(clusters, share.names),
                    "error": share.error or whole.error,
                }
            )
            for name, share in shares.items()
        }


async def run(settings: Settings, source: Source) -> None:
    """Runs the agent until SIGTERM or SIGINT."""
    loop = asyncio.get_running_loop()
    async with aiohttp.ClientSession() as session:
        agent = Agent(settings, Admin(session, settings.admin_port))
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, agent.stop)
        async with (
            serving(agent, settings),
            taking(agent.holdings, settings),
            asyncio.TaskGroup() as tasks,
        ):
            watching = tasks.create_task(source.watch(agent.changed))
            fetching = tasks.create_task(agent.follow_issuers(session))
            await agent.run()
            watching.cancel()
            fetching.cancel()


def main(settings: Settings, directory: Path | None) -> int:
    """Runs the agent as this process, over Kubernetes unless a directory is named."""
    source: Source
    if directory is not None:
        source = FromDirectory(directory)
    else:
        source = FromKubernetes(settings, Cluster.from_pod(os.environ))
    asyncio.run(run(settings, source))
    return 0
