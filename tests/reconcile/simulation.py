"""What a real API server lacks in tests: controllers, nodes, gateways, load and time.

Works through the API server alone, as the real ones would: Deployments get pods
that become ready one step later, gateways use the route one step later, workers
count tokens while time goes by. Time is a number that the test moves.
"""

import itertools
import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from tests.builders import NOW, a_raw_spec

from speculative_api import labels
from speculative_api.gateway import (
    ROUTE_KEY,
    Activity,
    ClusterState,
    GatewayState,
    Route,
    ShadowState,
)
from speculative_api.worker import Digest
from speculative_operator.cluster.client import MERGE_PATCH, Client
from speculative_operator.cluster.resources import (
    CHILDREN,
    CONFIG_MAP,
    DEPLOYMENT,
    POD,
    SPECULATIVE_DEPLOYMENT,
    WATCHED,
    Resource,
)
from speculative_operator.errors import NotFound
from speculative_operator.gather import Stores
from speculative_operator.metrics.source import Target

JSON = dict[str, Any]
STEP_SECONDS = 5.0
REQUESTS_A_SECOND = 4.0
TOKENS_A_REQUEST = 24

ROLLOUT = {
    "steps": [{"weight": 50}, {"pause": {"durationSeconds": 60}}],
    "guard": {"durationSeconds": 30, "holdbackWeight": 5},
}


@dataclass
class Count:
    """Counters of one worker."""

    started_at: float
    generated: int = 0
    accepted: int = 0
    requests: int = 0


@dataclass
class Simulation:
    """One resource in the namespace `default` and the world around it."""

    client: Client
    name: str
    now: datetime = NOW
    acceptance: dict[str, float] = field(default_factory=dict)
    """Share of tokens that come from drafts, by revision; 0.6 unless said otherwise."""
    counts: dict[str, Count] = field(default_factory=dict)
    revisions: dict[str, str] = field(default_factory=dict)
    """Pod UID to revision hash."""
    ready: dict[str, int] = field(default_factory=dict)
    route: Route | None = None
    """What the gateways use."""
    answered: dict[str, int] = field(default_factory=dict)
    failed: dict[str, int] = field(default_factory=dict)
    failing: set[str] = field(default_factory=set)
    """Revisions that answer everything with a 5xx."""
    requests_a_second: float = REQUESTS_A_SECOND
    copied: dict[str, int] = field(default_factory=dict)
    copies_seen: list[int] = field(default_factory=list)
    """Percentages that the gateways copied, one after the other."""
    fewest_ready: dict[str, int] = field(default_factory=dict)
    """Fewest ready pods of each revision since it had all of them."""
    stuck: set[str] = field(default_factory=set)
    """Revisions whose further pods do not become ready."""
    asks: bool = True
    """Whether users send requests."""
    asked_at: datetime = NOW
    namespace: str = "default"
    step_seconds: float = STEP_SECONDS
    pods_seen: dict[str, set[str]] = field(default_factory=dict)
    """Every pod UID that ever was, by revision."""
    weights_seen: list[tuple[tuple[str, int], ...]] = field(default_factory=list)

    @property
    def key(self) -> tuple[str, str]:
        return self.namespace, self.name

    async def create(self, **spec: Any) -> JSON:
        body = {
            "apiVersion": SPECULATIVE_DEPLOYMENT.api_version,
            "kind": SPECULATIVE_DEPLOYMENT.kind,
            "metadata": {"name": self.name, "namespace": self.namespace},
            "spec": a_raw_spec(**({"rollout": ROLLOUT} | spec)),
        }
        return await self.client.create(SPECULATIVE_DEPLOYMENT, body)

    async def parent(self) -> JSON:
        return await self.client.get(SPECULATIVE_DEPLOYMENT, *self.key)

    async def status(self) -> JSON:
        status: JSON = (await self.parent()).get("status", {})
        return status

    async def change(self, patch: JSON) -> None:
        """A user's edit."""
        await self._patch(SPECULATIVE_DEPLOYMENT, self.name, patch)

    async def _patch(
        self, resource: Resource, name: str, patch: JSON, subresource: str = ""
    ) -> None:
        path = resource.path(self.namespace, name, subresource)
        await self.client.request(
            "edit", resource, "PATCH", path, body=patch, content_type=MERGE_PATCH
        )

    async def mine(self, resource: Resource) -> list[JSON]:
        selector = f"{labels.NAME}={self.name}"
        try:
            return (await self.client.list_all(resource, self.namespace, selector=selector))[0]
        except NotFound:
            assert resource.optional
            return []

    async def mirror(self, stores: Stores) -> None:
        """Brings stores up to date, as reflectors would."""
        for resource in WATCHED:
            own = resource is SPECULATIVE_DEPLOYMENT
            selector = "" if own else f"{labels.NAME}={self.name}"
            store = stores[resource.kind]
            try:
                things, version = await self.client.list_all(
                    resource, self.namespace, selector=selector
                )
            except NotFound:
                assert resource.optional
                store.missing = True
                continue
            store.missing = False
            for thing in things:
                thing.update(apiVersion=resource.api_version, kind=resource.kind)
            store.replace(things, version)

    async def step(self) -> None:
        """Five seconds, or as many as the test says, in the lives of everybody else."""
        self.now += timedelta(seconds=self.step_seconds)
        deployments = {thing["metadata"]["name"]: thing for thing in await self.mine(DEPLOYMENT)}
        pods = [pod for pod in await self.mine(POD) if _is_of_a_deployment(pod)]
        await self._gateways_follow()
        gone = _to_go(pods, deployments)
        for name, deployment in deployments.items():
            mine = [p for p in pods if _deployment_of(p) == name and _is_up(p)]
            ready = sum(p["metadata"]["name"] not in gone for p in mine)
            revision = deployment["metadata"]["labels"].get(labels.REVISION, "")
            if ready >= deployment["spec"]["replicas"] or revision in self.fewest_ready:
                self.fewest_ready[revision] = min(ready, self.fewest_ready.get(revision, ready))
        for pod in pods:
            await self._live(pod, gone)
        for name, deployment in deployments.items():
            present = [p for p in pods if _deployment_of(p) == name]
            current = [p for p in present if _is_current(p, deployment)]
            missing = deployment["spec"]["replicas"] - len(current)
            if len(current) < len(present):
                # maxSurge 1: the next new pod comes when the last one is ready and an old one went.
                missing = min(missing, deployment["spec"]["replicas"] + 1 - len(present))
            numbers = (n for n in itertools.count() if f"{name}-{n}" not in _names(present))
            for number in itertools.islice(numbers, max(missing, 0)):
                await self._start(name, deployment, number)
        self._serve()

    async def _live(self, pod: JSON, gone: set[str]) -> None:
        if pod["metadata"]["name"] in gone:
            path = POD.path(self.namespace, pod["metadata"]["name"])
            await self.client.request("end", POD, "DELETE", path, query={"gracePeriodSeconds": "0"})
            self.revisions.pop(pod["metadata"]["uid"], None)
        elif not _is_up(pod) and pod["metadata"]["labels"].get(labels.REVISION) not in self.stuck:
            status = {
                "phase": "Running",
                "podIP": "10.0.0.9",
                "conditions": [{"type": "Ready", "status": "True"}],
            }
            await self._patch(POD, pod["metadata"]["name"], {"status": status}, "status")
            revision = pod["metadata"]["labels"].get(labels.REVISION)
            if revision:
                uid = pod["metadata"]["uid"]
                self.revisions[uid] = revision
                self.counts[uid] = Count(self.now.timestamp())
                self.pods_seen.setdefault(revision, set()).add(uid)

    async def _start(self, name: str, deployment: JSON, number: int) -> None:
        template = deployment["spec"]["template"]
        container = {"name": "main", "image": "image"}
        body = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "name": f"{name}-{number}",
                "namespace": self.namespace,
                "labels": template["metadata"]["labels"],
                "annotations": template["metadata"].get("annotations") or {},
            },
            "spec": {"containers": [container], "automountServiceAccountToken": False},
        }
        await self.client.create(POD, body)

    async def _gateways_follow(self) -> None:
        try:
            thing = await self.client.get(CONFIG_MAP, self.namespace, f"{self.name}-route")
        except NotFound:
            return
        self.route = Route.model_validate_json(thing["data"][ROUTE_KEY])
        weights = tuple((b.hash, b.weight) for b in self.route.backends)
        if not self.weights_seen or self.weights_seen[-1] != weights:
            self.weights_seen.append(weights)
        percent = self.route.shadow.percent if self.route.shadow else 0
        if (self.copies_seen or [0])[-1] != percent:
            self.copies_seen.append(percent)

    def _serve(self) -> None:
        """Requests of one step go to ready pods by weight."""
        if self.route is None or not self.asks:
            return
        self.asked_at = self.now
        for backend in self.route.backends:
            pods = [uid for uid, revision in self.revisions.items() if revision == backend.hash]
            requests = int(self.requests_a_second * self.step_seconds * backend.weight / 100)
            if not pods:
                # Before the first pod there is nothing to send to, whoever is named.
                waits = self.route.waiting is not None
                named = backend.weight > 0 and bool(self.answered) and not waits
                assert not named, f"{backend.hash} has {backend.weight} percent and no pod"
                continue
            counted = self.failed if backend.hash in self.failing else self.answered
            counted[backend.hash] = counted.get(backend.hash, 0) + requests
            self._generate(backend.hash, pods, requests)
        if shadow := self.route.shadow:
            pods = [uid for uid, revision in self.revisions.items() if revision == shadow.hash]
            copies = int(REQUESTS_A_SECOND * STEP_SECONDS * shadow.percent / 100) if pods else 0
            self.copied[shadow.hash] = self.copied.get(shadow.hash, 0) + copies
            self._generate(shadow.hash, pods, copies)

    def _generate(self, revision: str, pods: list[str], requests: int) -> None:
        for uid in pods:
            count = self.counts[uid]
            tokens = requests * TOKENS_A_REQUEST // len(pods)
            count.requests += requests // len(pods)
            count.generated += tokens
            count.accepted += int(tokens * self.acceptance.get(revision, 0.6))

    # The Source of the reconciler.

    async def ask(self, targets: Iterable[Target]) -> None:
        del targets

    def digest(self, uid: str) -> Digest | None:
        count = self.counts.get(uid)
        if count is None:
            return None
        return Digest(
            ready=True,
            engine_started_at=count.started_at,
            sampled_at=self.now.timestamp(),
            method="NGram",
            num_speculative_tokens=4,
            requests_finished=count.requests,
            generated_tokens=count.generated,
            accepted_tokens=count.accepted,
            draft_tokens=2 * count.accepted + 1,
            drafts=count.accepted,
        )

    def state(self, uid: str) -> GatewayState | None:
        del uid
        if self.route is None:
            return None
        pods = list(self.revisions.values())
        clusters = tuple(
            ClusterState(
                hash=backend.hash,
                weight=backend.weight,
                endpoints=pods.count(backend.hash),
                active=0,
                responses={
                    "2xx": self.answered.get(backend.hash, 0),
                    "5xx": self.failed.get(backend.hash, 0),
                },
                shadow=self._shadow(backend.hash),
            )
            for backend in self.route.backends
        )
        return GatewayState(
            envoy_started_at=NOW.timestamp(),
            sampled_at=self.now.timestamp(),
            owner_uid=self.route.owner_uid,
            sequence=self.route.sequence,
            ready=True,
            clusters=clusters,
            activity=Activity(
                since=NOW.timestamp(),
                requested_at=self.asked_at.timestamp() if self.asked_at > NOW else None,
            ),
        )

    def _shadow(self, revision: str) -> ShadowState | None:
        shadow = self.route.shadow if self.route else None
        if shadow is None or shadow.hash != revision:
            return None
        answers = {"2xx": self.copied.get(revision, 0)}
        return ShadowState(percent=shadow.percent, active=0, responses=answers)

    def silent_seconds(self, uid: str) -> float:
        del uid
        return 0.0

    async def picture(self) -> JSON:
        """The end state, without what differs from run to run: times, UIDs, versions."""
        found: JSON = {}
        for resource in CHILDREN:
            for thing in await self.mine(resource):
                body = {k: v for k, v in thing.items() if k in ("spec", "data", "revision")}
                body.get("spec", {}).pop("clusterIP", None)
                body.get("spec", {}).pop("clusterIPs", None)
                name = thing["metadata"]["name"].replace(self.name, "NAME")
                if name == f"NAME{labels.EVIDENCE_SUFFIX}":
                    # Kept for whoever asks why; it names pods, and a crash may cost a look.
                    body.pop("data")
                found[f"{resource.kind}/{name}"] = body
        uid = (await self.parent())["metadata"]["uid"]
        text = json.dumps(found, sort_keys=True).replace(self.name, "NAME").replace(uid, "UID")
        picture: JSON = json.loads(text)
        return picture


def _is_of_a_deployment(pod: JSON) -> bool:
    return not {labels.JOB_NAME, labels.GROUPS_NAME} & {*pod["metadata"]["labels"]}


def _to_go(pods: list[JSON], deployments: dict[str, JSON]) -> set[str]:
    """Names of pods that the Deployment controller would delete now: maxUnavailable 0."""
    gone = {p["metadata"]["name"] for p in pods if _deployment_of(p) not in deployments}
    for name, deployment in deployments.items():
        present = [p for p in pods if _deployment_of(p) == name]
        wanted = deployment["spec"]["replicas"]
        old = [p for p in present if not _is_current(p, deployment)]
        current = [p for p in present if _is_current(p, deployment)]
        gone |= _names(current[wanted:])
        spare = sum(_is_up(p) for p in present) - wanted
        # Old pods that never came up block nothing and go first.
        gone |= _names([p for p in old if not _is_up(p)])
        gone |= _names([p for p in old if _is_up(p)][: max(spare, 0)])
        gone |= _names(old) if wanted == 0 else set()
    return gone


def _names(pods: Iterable[JSON]) -> set[str]:
    return {p["metadata"]["name"] for p in pods}


def _is_up(pod: JSON) -> bool:
    return bool(pod.get("status", {}).get("podIP"))


def _is_current(pod: JSON, deployment: JSON) -> bool:
    template = deployment["spec"]["template"]["metadata"].get("annotations") or {}
    return bool((pod["metadata"].get("annotations") or {}) == template)


def _deployment_of(pod: JSON) -> str:
    return str(pod["metadata"]["name"].rsplit("-", 1)[0])
