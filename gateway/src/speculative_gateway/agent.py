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
from collections.abc import Mapping
from pathlib import Path

import aiohttp
from aiohttp import web

from speculative_api import gateway

from . import storage
from .acceptance import accepted
from .admin import Admin, Life
from .applier import Applier, Superseded
from .configuration import Configuration
from .errors import EnvoySlow, EnvoyUnreachable, ReadbackMismatch, RouteRefused
from .holding import Holding, taking
from .issuer import Issuer
from .keys import Keys, usable
from .kubernetes import Cluster, FromKubernetes
from .render import NO_KEY_SET, NO_KEYS, rendered
from .serving import serving
from .settings import Settings
from .source import FromDirectory, Observation, Source
from .state import Sample, metrics, never_falling, passed_on

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
        self._issuer = Issuer(settings)
        self.holding = Holding(admin.hosts)
        self._last = self._adopted()
        self.holding.follow(self._last)
        self._observation: Observation | None = None
        self._wake = asyncio.Event()
        self._used_since: Life | None = None
        """The life of Envoy in which the route was read back."""
        self._verified_at = 0.0
        self._answered_at = 0.0
        self._retry_at = 0.0
        self._refusal = ""
        """Why the newest observation is not used as it is."""
        self._mismatch = ""
        """What Envoy did not take, until it takes the next."""
        self._locked = False
        """Keys are asked for and there are none."""
        self._uncertified = settings.tls_directory is not None
        """TLS is asked for and Envoy has loaded no certificate."""
        self._stopping = False
        self._turned_at = time.monotonic()
        self._sampling = asyncio.Lock()
        self._sample: tuple[float, gateway.GatewayState] | None = None
        self._counted: gateway.GatewayState | None = None
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
        return self._locked or self._stopping or self._uncertified

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

    async def follow_issuer(self, session: aiohttp.ClientSession) -> None:
        """Fetches the issuer's keys for ever, while the route names where."""
        await self._issuer.follow(session, self._wake.set)

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
        life: Life | None = None
        try:
            life = await self._admin.life()
            self._answered_at = time.monotonic()
            await self._keep(life)
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
            return life
        except ReadbackMismatch as mismatch:
            self._mismatch = str(mismatch)
            self._retry_at = time.monotonic() + RETRY_SECONDS
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._wake.wait(), LOOK_SECONDS)
        return life

    async def _keep(self, life: Life) -> None:
        """One look: decide, apply what differs, verify."""
        now = time.monotonic()
        if self._used_since is not None and self._used_since.started_at != life.started_at:
            _log.info("envoy has a new life")
            self._used_since = None
            self._applier.begin_life()
        observation = self._observation
        route, wanted = self._wanted(observation)
        same = self._last == route and self._applier.on_disk() == wanted
        if same and self._used_since is not None and now < self._verified_at + VERIFY_SECONDS:
            return
        if now < self._retry_at:
            return
        await self._applier.apply(wanted, superseded=lambda: self._observation is not observation)
        if self._settings.tls_directory is not None:
            self._uncertified = await self._admin.certificates() == 0
        self._verified_at = now
        self._mismatch = ""
        if route is None:
            return
        self._used_since = life
        if route != self._last:
            text = route.model_dump_json(by_alias=True, indent=1) + "\n"
            storage.write(self._applied_file, text)
            _log.info("in use sequence=%d weights=%s", route.sequence, dict(wanted.weights))
            self._last = route
            self.holding.follow(route)
            self._changes += 1
            self._sample = None

    def _wanted(
        self, observation: Observation | None
    ) -> tuple[gateway.Route | None, Configuration]:
        """The newest usable route and its configuration; what is on disk where there is none."""
        if observation is None:
            return self._last, self._applier.on_disk()
        endpoints, problem, route = observation.endpoints, observation.problem, self._last
        try:
            if problem:
                raise RouteRefused(problem)
            if observation.route is not None:
                try:
                    route = accepted(
                        observation.route,
                        endpoints,
                        last=self._last,
                        authorities=self._settings.authorities,
                    )
                except RouteRefused as refusal:
                    problem = str(refusal)
            if route is None:
                self._refuse(problem)
                return None, self._applier.on_disk()
            keys = self._keys(route, observation.keys)
            jwt = route.auth.jwt if route.auth else None
            found = self._issuer.key_set(jwt) if jwt else NO_KEY_SET
            self._locked = route.auth is not None and not (keys.by_client or found.text)
            problem = "; ".join(each for each in (problem, keys.problem, found.problem) if each)
            wanted = rendered(
                route,
                endpoints,
                folder=self._settings.xds,
                keys=keys,
                key_set=found,
                waiting_port=self._settings.waiting_port,
            )
        except RouteRefused as refusal:
            self._refuse(str(refusal))
            return self._last, self._applier.on_disk()
        self._refuse(problem)
        return route, wanted

    def _keys(self, route: gateway.Route, seen: Mapping[str, bytes] | None) -> Keys:
        """The keys as seen through the API, else as mounted now; none, with the reason, where
        they can't be read.
        """
        if route.auth is None:
            return NO_KEYS
        if route.auth.jwt is not None:
            return NO_KEYS
        folder = self._settings.api_keys_directory
        name = route.auth.api_keys_secret
        if folder is None and seen is None:
            return Keys(problem=f"this pod has no Secret {name} mounted: its successor will")
        try:
            found = usable(storage.read_secret(folder) if seen is None and folder else seen or {})
        except OSError as error:
            return Keys(problem=f"Secret {name} can't be read: {error.strerror}")
        if found.by_client:
            return found
        why = found.problem or "it is missing or empty"
        return Keys(problem=f"every request is refused: Secret {name} has no usable key: {why}")

    def _refuse(self, problem: str) -> None:
        if problem and problem != self._refusal:
            _log.error("%s", problem)
        self._refusal = problem

    def _adopted(self) -> gateway.Route | None:
        """The route that an earlier agent of this pod applied."""
        try:
            return gateway.Route.model_validate_json(self._applied_file.read_text())
        except FileNotFoundError:
            return None
        except ValueError as error:
            _log.warning("applied.json is not usable: %s", error)
            return None

    async def state(self) -> gateway.GatewayState:
        """What Envoy uses, read since the last change and at most a second ago; requests that
        found no worker are known at once, for who heard of a wake comes for them.

        Raises:
            EnvoyUnreachable: it can't be asked.
        """
        async with self._sampling:
            while self._sample is None or time.monotonic() > self._sample[0] + CACHE_SECONDS:
                now, changes = time.monotonic(), self._changes
                sample = await self._read()
                if changes == self._changes:
                    self._counted = never_falling(self._state(sample), self._counted)
                    self._sample = (now, self._counted)
            return self._sample[1].model_copy(update={"activity": self.holding.activity})

    async def woken(self, request: web.Request) -> web.Response:
        """Answers when somebody asks something of a worker, see `Holding.woken`."""
        return await self.holding.woken(request)

    async def metrics(self) -> str:
        """The state and Envoy's own figures, in Prometheus' text format.

        Raises:
            EnvoyUnreachable: it can't be asked.
        """
        state = await self.state()
        revisions = {each.hash for each in state.clusters}
        return metrics(state) + passed_on(await self._admin.figures(), revisions)

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

    def _state(self, sample: Sample) -> gateway.GatewayState:
        used = self._used_since
        seen = used is not None and used.started_at == sample.started_at
        last = self._last if seen else None
        clusters = sample.clusters()
        self.holding.note(sample.started_at, clusters)
        return gateway.GatewayState(
            pod=self._settings.pod,
            envoy_started_at=sample.started_at,
            sampled_at=sample.taken_at,
            owner_uid=last.owner_uid if last else "",
            sequence=last.sequence if last else -1,
            ready=seen and not self._closed,
            clusters=clusters,
            activity=self.holding.activity,
            error=self._refusal or self._mismatch or (NO_CERTIFICATE if self._uncertified else ""),
        )


async def run(settings: Settings, source: Source) -> None:
    """Runs the agent until SIGTERM or SIGINT."""
    loop = asyncio.get_running_loop()
    async with aiohttp.ClientSession() as session:
        agent = Agent(settings, Admin(session, settings.admin_port))
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, agent.stop)
        async with (
            serving(agent, settings),
            taking(agent.holding, settings),
            asyncio.TaskGroup() as tasks,
        ):
            watching = tasks.create_task(source.watch(agent.changed))
            fetching = tasks.create_task(agent.follow_issuer(session))
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
