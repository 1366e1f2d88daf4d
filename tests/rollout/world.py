"""A small pure world around `decide`: it does what Kubernetes and the gateways would do.

Pods appear not ready and become ready later; gateways follow the shares one
step later. Used by scenario and property tests.
"""

from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from tests.builders import NOW, UID

from speculative_api.gateway import (
    Backend,
    ClusterState,
    GatewayState,
    Route,
    Shadow,
    ShadowState,
)
from speculative_api.v1alpha1 import (
    GatewayMode,
    SpeculativeDeploymentSpec,
    SpeculativeDeploymentStatus,
)
from speculative_api.worker import Digest, PreflightReport, Termination
from speculative_operator.decision import Assessment, Decision, Event
from speculative_operator.desired import revision
from speculative_operator.rollout.decide import decide
from speculative_operator.snapshot import (
    CheckView,
    DeploymentView,
    GatewayPod,
    HttpRoute,
    Pool,
    RevisionRecord,
    RouteParent,
    Snapshot,
    WorkerPod,
)

PASSES = CheckView(report=PreflightReport())


@dataclass
class World:
    """One resource, its pods and one gateway."""

    spec: SpeculativeDeploymentSpec
    now: datetime = NOW
    status: SpeculativeDeploymentStatus = field(default_factory=SpeculativeDeploymentStatus)
    annotations: dict[str, str] = field(default_factory=dict)
    findings: tuple[str, ...] = ()
    assessment: Assessment = field(default_factory=Assessment)
    ends: dict[str, Termination] = field(default_factory=dict)
    """How the pods of a revision end instead of becoming ready."""
    digests: dict[str, Digest] = field(default_factory=dict)
    """What every pod of a revision says."""
    checks: dict[str, CheckView] = field(default_factory=dict)
    """What the Job that checks a revision comes to; one that is not named passes."""
    jobs: set[str] = field(default_factory=set)
    """Moments at which the checks began whose Jobs exist."""
    passed: set[str] = field(default_factory=set)
    """Revisions that a check let through."""
    unready: set[str] = field(default_factory=set)
    active: dict[str, int] = field(default_factory=dict)
    silent: bool = False
    accepts: bool = True
    """Whether somebody else's Gateway takes the route."""
    pickerless: set[str] = field(default_factory=set)
    """Revisions whose InferencePool no Gateway can send to."""
    records: dict[str, RevisionRecord] = field(default_factory=dict)
    pods: dict[str, list[bool]] = field(default_factory=dict)
    route: Route | None = None
    used: tuple[tuple[str, int], ...] = ()
    """What the gateway uses: hash and weight."""
    used_shadow: Shadow | None = None
    """The copies that the gateway makes."""
    copies: dict[str, int] = field(default_factory=dict)
    """Copies in flight, by revision."""
    used_sequence: int = -1
    """Sequence of the route that it uses."""
    deaf: bool = False
    """The gateway answers and does not follow."""
    events: list[Event] = field(default_factory=list)
    decisions: list[Decision] = field(default_factory=list)
    looked: Snapshot | None = None
    """What the last decision was made from."""

    def snapshot(self) -> Snapshot:
        pods = tuple(
            WorkerPod(
                name=f"{hash_}-{index}",
                uid=f"{hash_}-{index}",
                revision=hash_,
                ready=ready,
                termination=self.ends.get(hash_),
                digest=self.digests.get(hash_),
            )
            for hash_, readiness in self.pods.items()
            for index, ready in enumerate(readiness)
        )
        clusters = tuple(
            ClusterState(
                hash=hash_,
                weight=weight,
                endpoints=sum(self.pods.get(hash_, [])),
                active=self.active.get(hash_, 0),
                shadow=self._shadow_state(hash_),
            )
            for hash_, weight in self.used
        )
        gateway = GatewayPod(
            name="gateway",
            uid="gateway",
            ready=True,
            state=GatewayState(
                envoy_started_at=0,
                sampled_at=0,
                sequence=self.used_sequence,
                ready=True,
                clusters=clusters,
            ),
            silent_seconds=100.0 if self.silent else 0.0,
        )
        return Snapshot(
            now=self.now,
            namespace="llm",
            name="chat",
            uid=UID,
            generation=1,
            spec=self.spec,
            status=self.status,
            words=revision.words_of(self.spec),
            annotations=dict(self.annotations),
            findings=self.findings,
            revisions=dict(self.records),
            deployments={
                hash_: DeploymentView(
                    name=hash_,
                    hash=hash_,
                    track="",
                    replicas=len(readiness),
                    ready_replicas=sum(readiness),
                )
                for hash_, readiness in self.pods.items()
            },
            pods=pods,
            gateways=(gateway,) if self.spec.gateway.mode.reads_back else (),
            route=self.route,
            http_route=self._http_route(),
            pools=self._pools(),
            check=self._check(),
        )

    def _check(self) -> CheckView | None:
        entry = self.status.preflight
        if entry is None or entry.outcome is not None:
            return None
        if entry.started_at not in self.jobs:
            return CheckView()
        found = self.checks.get(entry.hash, PASSES)
        if found.report is not None:
            self.passed.add(entry.hash)
        return found

    def _make_job(self, decision: Decision) -> None:
        """As `desired` does: the Job of a check under way and no other one."""
        entry = decision.status.preflight
        goes_on = entry is not None and entry.outcome is None
        self.jobs = {entry.started_at} if entry is not None and goes_on else set()

    def _shadow_state(self, hash_: str) -> ShadowState | None:
        if self.used_shadow is None or self.used_shadow.hash != hash_:
            return None
        return ShadowState(percent=self.used_shadow.percent, active=self.copies.get(hash_, 0))

    def _http_route(self) -> HttpRoute | None:
        if self.spec.gateway.mode is not GatewayMode.GATEWAY_API or not self.used:
            return None
        parents = (RouteParent("example.com/c", self.accepts, 1),)
        return HttpRoute(generation=1, weights=dict(self.used), parents=parents)

    def _pools(self) -> dict[str, Pool]:
        """As `desired` makes them; those in `pickerless` have nobody who chooses a pod."""
        if self.spec.gateway.endpoint_picker_ref is None:
            return {}
        wrong = "InvalidExtensionRef: no such Service"
        return {
            hash_: Pool(1, (RouteParent("example.com/c", False, 1, wrong),))
            if hash_ in self.pickerless
            else Pool(1, (RouteParent("example.com/c", True, 1),))
            for hash_ in self.pods
        }

    def look(self, seconds: float = 1.0) -> Decision:
        """One pass and its effects; time goes on and the world follows."""
        snapshot = self.looked = self.snapshot()
        decision = decide(snapshot, self.assessment)
        self.decisions.append(decision)
        self.status = decision.status
        self.events += decision.events
        for scale in decision.scales:
            if scale.hash not in self.records:
                number = len(self.records) + 1
                self.records[scale.hash] = RevisionRecord(scale.hash, number, {}, {})
        self._make_job(decision)
        self._kubernetes(decision)
        self._follow(decision)
        self.now += timedelta(seconds=seconds)
        return decision

    def _kubernetes(self, decision: Decision) -> None:
        for scale in decision.scales:
            readiness = self.pods.setdefault(scale.hash, [])
            del readiness[scale.replicas :]
            for index in range(len(readiness)):
                readiness[index] = scale.hash not in self.ends and scale.hash not in self.unready
            readiness += [False] * (scale.replicas - len(readiness))
        kept = {scale.hash for scale in decision.scales}
        for gone in set(self.pods) - kept:
            del self.pods[gone]

    def _follow(self, decision: Decision) -> None:
        if not self.spec.gateway.mode.splits:
            self.route, self.used = None, ()
            return
        if not self.spec.gateway.mode.reads_back:
            self.used = tuple((share.hash, share.weight) for share in decision.shares)
            return
        if self.route is not None and not self.deaf:
            self.used_sequence = self.route.sequence
            self.used = tuple((b.hash, b.weight) for b in self.route.backends)
            self.used_shadow = self.route.shadow
        self.write_route(decision)

    def write_route(self, decision: Decision) -> None:
        """What the ConfigMap says from now on."""
        if not decision.shares:
            return
        backends = tuple(
            Backend(hash=share.hash, service=share.hash, weight=share.weight)
            for share in decision.shares
        )
        wanted = decision.copies
        shadow = None
        if wanted is not None:
            had = self.route.shadow if self.route else None
            most = wanted.most or (had.most_requests if had else 1)
            shadow = Shadow(hash=wanted.hash, percent=wanted.percent, most_requests=most)
        before = self.route
        if before is None or (before.backends, before.shadow) != (backends, shadow):
            self.route = Route(
                owner_uid=UID,
                sequence=before.sequence + 1 if before else 1,
                model="chat",
                default=backends[0].hash,
                backends=backends,
                shadow=shadow,
            )

    def settle(self, looks: int = 30, seconds: float = 1.0) -> None:
        """Looks until nothing changes any more, at most so often."""
        for _ in range(looks):
            before = (self.status, self.route, {k: list(v) for k, v in self.pods.items()})
            decision = self.look(seconds)
            after = (self.status, self.route, self.pods)
            if not decision.transition and before == after:
                return

    def until(self, reason: str, looks: int = 200, seconds: float = 1.0) -> Event:
        """Looks until an event of this reason was emitted."""
        for _ in range(looks):
            for event in self.look(seconds).events:
                if event.reason == reason:
                    return event
        raise AssertionError(f"no {reason} within {looks} looks; got {self.events}")

    def change(self, spec: SpeculativeDeploymentSpec) -> str:
        """A user applies another spec; returns the hash it asks for."""
        self.spec = spec
        return revision.words_of(spec).hash

    def with_assessment(self, assessment: Assessment) -> "World":
        self.assessment = assessment
        return self


def changed(snapshot: Snapshot, **fields: object) -> Snapshot:
    """The snapshot with some fields replaced."""
    return replace(snapshot, **fields)  # type: ignore[arg-type]
