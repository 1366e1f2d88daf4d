"""The story that the demo tells, one function a chapter."""

import asyncio
import socket
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import aiohttp
from e2e.load import PROMPTS, Load, Result
from e2e.load.request import Question, ask

from speculative_api.conditions import ConditionType, Reason

from . import documents, lanes
from .errors import DemoError
from .kube import Kube
from .report import DemoReport
from .terminal import Display
from .watch import Watch
from .world import PodView, World

NOTICE_SECONDS = 60.0
"""A new operator waits for the Lease of one that crashed."""
FIRST_START_SECONDS = 600.0
"""Two engines load at once, accelerated and native."""
CANARY_START_SECONDS = 600.0
"""An engine that starts beside a loaded one took 86 s on two cores."""
WEIGHT_SECONDS = 60.0
VERDICT_SECONDS = 900.0
"""Evidence comes by requests: at half a machine's usual speed the bad draft took 420 s."""
REMOVAL_SECONDS = 180.0
"""Weight, streams, cluster, then a pod's own drain."""
CONNECT_SECONDS = 3.0


@dataclass
class Demo:
    """What every chapter needs."""

    kube: Kube
    display: Display
    watch: Watch
    report: DemoReport
    document: dict[str, Any]
    """The example with the node's model folder put in, as last applied."""
    models: str
    url: str = ""
    """The gateway, once it is known."""

    @property
    def namespace(self) -> str:
        return self.watch.observer.namespace

    @property
    def name(self) -> str:
        return self.watch.observer.name

    async def apply(self, document: dict[str, Any], what: str) -> None:
        """Applies the resource, and notes when."""
        self.document = document
        self.display.say(await self.kube.apply(self.namespace, document))
        self.report.timeline.add(self.display.elapsed_seconds, what, what)


async def start(demo: Demo) -> None:
    """From nothing to Available: the first revision, the native lane and the gateway serve."""
    await demo.kube.kubectl(
        *["wait", "--for=condition=Established", "--timeout=30s"],
        "crd/speculativedeployments.speculative.dev",
    )
    await demo.kube.apply(demo.namespace, documents.namespace(demo.namespace))
    await _remove_earlier(demo)
    await demo.apply(demo.document, "applied")
    await demo.watch.until(
        lambda seen: seen.current, what="the operator looks at it", seconds=NOTICE_SECONDS
    )
    world = await demo.watch.until(
        _serving, what="first revision", seconds=FIRST_START_SECONDS, wrong=_refused
    )
    if world.status.stable is None:
        raise DemoError("Available, but status names no stable revision")
    demo.report.stable = world.status.stable.hash
    demo.report.timeline.add(world.at, "available", "condition Available is True")
    demo.url = await _gateway_url(demo)


async def _remove_earlier(demo: Demo) -> None:
    """An earlier run's resource would remember its failed revision."""
    kind = "speculativedeployment"
    delete = ("delete", "-n", demo.namespace, kind, demo.name, "--ignore-not-found")
    said = await demo.kube.kubectl(*delete)
    if not said.strip():
        return
    demo.display.say(said.strip())
    deadline = demo.display.elapsed_seconds + REMOVAL_SECONDS
    while pods := await demo.watch.observer.raw_pods():
        if demo.display.elapsed_seconds > deadline:
            names = ", ".join(pod["metadata"]["name"] for pod in pods)
            raise DemoError(f"pods of the earlier run are still there: {names}")
        demo.display.detail(f"{len(pods)} pods of the earlier run are ending")
        await asyncio.sleep(1)


def _serving(world: World) -> bool:
    native = world.workers(world.tracks.get("native", "?"))
    return (
        world.is_true(ConditionType.AVAILABLE)
        and world.is_true(ConditionType.GATEWAY_READY)
        and any(pod.ready for pod in native)
    )


def _refused(world: World) -> str:
    for kind in (ConditionType.ACCEPTED, ConditionType.AVAILABLE):
        found = world.condition(kind)
        hopeless = (Reason.INVALID_SPEC, Reason.NAME_CONFLICT, Reason.FIRST_REVISION_FAILED)
        if world.current and found and found.status == "False" and found.reason in hopeless:
            return f"{kind}=False {found.reason}: {found.message}"
    return ""


async def _gateway_url(demo: Demo) -> str:
    """The gateway's Service address, or a forwarded port where that can't be reached from here."""
    service = f"{demo.name}-gateway"
    raw = await demo.kube.look(f"/api/v1/namespaces/{demo.namespace}/services/{service}")
    if raw is None:
        raise DemoError(f"Service {service} does not exist")
    address, port = raw["spec"]["clusterIP"], raw["spec"]["ports"][0]["port"]
    try:
        async with asyncio.timeout(CONNECT_SECONDS):
            _, writer = await asyncio.open_connection(address, port, family=socket.AF_INET)
        writer.close()
        await writer.wait_closed()
    except (OSError, TimeoutError):
        forwarded = await demo.kube.forward(demo.namespace, service)
        demo.display.say(f"{address}:{port} can't be reached from here: forwarded to {forwarded}")
        return f"http://{forwarded}"
    return f"http://{address}:{port}"


async def talk(demo: Demo) -> None:
    """One chat completion through the gateway, its text shown as it comes."""
    pieces: list[str] = []

    def show(text: str) -> None:
        pieces.append(text)
        demo.display.piece(text)

    question = Question(
        url=demo.url,
        model=demo.document["spec"]["target"].get("servedModelName", demo.name),
        prompt=PROMPTS["free"][0],
        max_tokens=48,
    )
    demo.display.say(f"> {question.prompt}")
    async with aiohttp.ClientSession(trust_env=False) as session:
        outcome = await ask(session, question, on_text=show)
    demo.display.plain("")
    if outcome.result is not Result.OK:
        raise DemoError(f"the chat completion was {outcome.result}: {outcome.error}")
    demo.report.answer = "".join(pieces)
    seconds = outcome.ended_at - outcome.started_at
    demo.display.say(f"{outcome.tokens} tokens in {seconds:.1f} s from {outcome.revision}")


async def compare_lanes(demo: Demo) -> None:
    """Speed and acceptance of both lanes, one after the other; then the native lane goes."""
    world = await demo.watch.look()
    tracks = world.tracks
    for lane, track in ((None, "stable"), ("native", "native")):
        pods = world.workers(tracks.get(track, "?"))
        found = await demo.display.shown(
            f"measuring the {lane or 'accelerated'} lane, {lanes.REQUESTS} answers",
            lanes.measure(demo.kube, namespace=demo.namespace, pods=pods, url=demo.url, lane=lane),
        )
        if lane is None:
            demo.report.accelerated = found
        else:
            demo.report.native = found
        demo.display.say(f"{lane or 'accelerated'} lane: {found.line()}")
    await demo.apply(documents.without_native(demo.document), "native lane scaled to 0")
    await demo.watch.until(
        lambda seen: seen.current and not seen.workers(tracks["native"]),
        what="native lane ends",
        seconds=REMOVAL_SECONDS,
    )


async def roll_back(demo: Demo, load: Load) -> None:
    """A revision with a useless draft is judged worse and taken out by itself."""
    stable = demo.report.stable
    before = await demo.watch.look()
    good = demo.document
    await demo.apply(documents.with_bad_draft(good, demo.models), "bad revision applied")
    bad = demo.report.bad = await _canary(demo)
    await _in_traffic(demo, bad)
    world = await demo.watch.until(
        lambda seen: _verdict(seen, bad) is not None,
        what="judging",
        seconds=VERDICT_SECONDS,
        wrong=_refused,
    )
    outcome = world.status.verdict
    if outcome is None or (outcome.outcome, outcome.reason) != ("RolledBack", "AcceptanceWorse"):
        raise DemoError(f"the bad draft was not rolled back for its acceptance: {outcome}")
    world = await demo.watch.until(
        lambda seen: (
            not seen.workers(bad) and not seen.status.retiring and seen.weight_in_envoy(bad) == 0
        ),
        what="removal",
        seconds=REMOVAL_SECONDS,
    )
    _require_order(demo, bad, ["started", "ready", "first weight", "verdict", "canary gone"])
    _require_order(demo, bad, ["weight zero in Envoy", "canary gone"])
    _require_same(before.workers(stable), world.workers(stable), "stable's pods")
    demo.display.say(f"stable's pods are the same as before; {load.report().line()}")
    demo.document = good


async def promote(demo: Demo, load: Load) -> None:
    """A good revision becomes stable without its pods restarting; then the old one goes."""
    old = demo.report.stable
    await demo.apply(documents.with_longer_drafts(demo.document), "good revision applied")
    good = demo.report.good = await _canary(demo)
    await _in_traffic(demo, good)
    judged = await demo.watch.look()
    world = await demo.watch.until(
        lambda seen: seen.status.stable is not None and seen.status.stable.hash == good,
        what="judging",
        seconds=VERDICT_SECONDS,
        wrong=lambda seen: _rolled_back(seen, good),
    )
    _require_same(judged.workers(good), world.workers(good), "the promoted pods")
    world = await demo.watch.until(
        lambda seen: (
            seen.status.guard is None and not seen.status.retiring and not seen.workers(old)
        ),
        what="guard",
        seconds=VERDICT_SECONDS,
        wrong=lambda seen: _rolled_back(seen, good),
    )
    demo.report.timeline.add(world.at, "old revision gone", f"{old}'s pods are gone")
    _require_same(judged.workers(good), world.workers(good), "the promoted pods")
    demo.display.say(f"promoted, and its pods never restarted; {load.report().line()}")


def finish_load(demo: Demo, load: Load) -> None:
    """The load's account: nothing failed, nothing was cut, each revision had its share.

    Raises:
        DemoError: a user would have noticed.
    """
    report = demo.report.load = load.report()
    demo.display.say(f"load: {report.line()}")
    if report.ok != report.requests:
        raise DemoError(f"of {report.requests} requests {report.results}: {report.errors}")
    for revision in (demo.report.stable, demo.report.bad, demo.report.good):
        if not report.by_revision.get(revision):
            raise DemoError(f"no request reached {revision}: {report.by_revision}")


async def _canary(demo: Demo) -> str:
    """The hash of the canary that the newest spec starts, from then on followed."""
    world = await demo.watch.until(
        lambda seen: seen.current and seen.status.canary is not None,
        what="canary",
        seconds=WEIGHT_SECONDS,
        wrong=_refused,
    )
    canary = world.status.canary
    if canary is None:
        raise DemoError("the canary left while it was looked at")
    demo.watch.followed = canary.hash
    return canary.hash


async def _in_traffic(demo: Demo, revision: str) -> None:
    """Waits until the canary is ready and the gateways give it its weight."""

    def happened(key: str) -> Callable[[World], bool]:
        return lambda _: demo.report.timeline.at(key, revision) is not None

    for key, seconds in (("ready", CANARY_START_SECONDS), ("first weight", WEIGHT_SECONDS)):
        await demo.watch.until(
            happened(key),
            what=f"canary {key}",
            seconds=seconds,
            wrong=lambda seen: _rolled_back(seen, revision),
        )


def _verdict(world: World, revision: str) -> str | None:
    verdict = world.status.verdict
    return verdict.outcome if verdict is not None and verdict.hash == revision else None


def _rolled_back(world: World, revision: str) -> str:
    verdict = world.status.verdict
    if verdict is None or _verdict(world, revision) in (None, "Promoted", "GuardPassed"):
        return _refused(world)
    return f"{verdict.outcome} {verdict.reason}: {verdict.message}"


def _require_order(demo: Demo, revision: str, keys: list[str]) -> None:
    times = [demo.report.timeline.at(key, revision) for key in keys]
    missing = [key for key, at in zip(keys, times, strict=True) if at is None]
    if missing:
        raise DemoError(f"{revision}: {', '.join(missing)} was not seen")
    found = [at for at in times if at is not None]
    if found != sorted(found):
        raise DemoError(f"{revision}: out of order: {dict(zip(keys, found, strict=True))}")


def _require_same(before: tuple[PodView, ...], after: tuple[PodView, ...], what: str) -> None:
    was, now = ({pod.name: pod.identity for pod in pods} for pods in (before, after))
    if not was or not was.items() <= now.items():
        raise DemoError(f"{what} changed: {was} became {now}")
