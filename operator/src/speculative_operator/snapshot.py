"""One look at the world of one SpeculativeDeployment: the input of every decision.

`gather` fills it from the caches and the last answers of pods; `analysis`,
`rollout` and `desired` read it. Pure data: no IO, no clock (`now` is a field).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Final

from speculative_api.conditions import WorkerReason
from speculative_api.gateway import GatewayState, Route
from speculative_api.v1alpha1 import (
    GroupFailure,
    SpeculativeDeploymentSpec,
    SpeculativeDeploymentStatus,
)
from speculative_api.worker import Digest, PreflightReport, Termination


@dataclass(frozen=True, slots=True)
class Words:
    """A revision's words: the revisioned part of a spec in canonical form.

    `canonical` holds the fields that differ from their defaults, camelCase;
    `hash` is derived from nothing else.
    """

    hash: str
    canonical: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class RevisionRecord:
    """A stored ControllerRevision: words and the pod template rendered from them."""

    hash: str
    number: int
    words: Mapping[str, Any]
    template: Mapping[str, Any]
    cause: str = ""
    """Why the spec was changed, as the resource said when the revision was first stored."""
    render: int = 0
    """Which rendering of the words the template is: `restart --rerender` stores another one."""


@dataclass(frozen=True, slots=True)
class DeploymentView:
    """A Deployment or LeaderWorkerSet of one revision's workers, as the API server last said."""

    name: str
    hash: str
    track: str
    replicas: int
    ready_replicas: int
    restarted_at: str = ""
    """What its pod template carries of the last restart; empty if there was none."""
    failure: str = ""
    """Why no pod can be made: a quota, an admission check, a missing ServiceAccount."""
    is_groups: bool = False
    """Whether it is a LeaderWorkerSet and its replicas are groups of pods."""


@dataclass(frozen=True, slots=True)
class AutoscalerView:
    """The HorizontalPodAutoscaler's own words about itself."""

    is_active: bool | None
    """Whether it reads its metrics and can scale; None while it has not said so."""
    message: str = ""


@dataclass(frozen=True, slots=True)
class NodeNews:
    """Somebody's word that a node is on its way for a pod that waits for room."""

    at: float
    """Unix seconds."""
    words: str


@dataclass(frozen=True, slots=True)
class WorkerPod:
    """One worker pod; `termination` is the newest last word of its container, if it ended."""

    name: str
    uid: str
    revision: str
    ready: bool
    terminating: bool = False
    over: bool = False
    """Whether it ended for good and holds no GPU any more: evicted, or its node was shut down.
    Such a pod stays around until somebody cleans up."""
    address: str = ""
    ready_at: float | None = None
    """Unix seconds since when it is ready; None while it is not."""
    restarts: int = 0
    restarted_at: str = ""
    """Which restart made it; empty: none."""
    termination: Termination | None = None
    waiting_reason: str = ""
    """Why it does not run: Unschedulable with the scheduler's words, ImagePullBackOff, …"""
    digest: Digest | None = None
    is_group: bool = False
    """Whether it is the leader of a group, and the rest is about all pods of that."""


@dataclass(frozen=True, slots=True)
class GatewayPod:
    """One gateway pod, terminating ones included; `state` is its agent's last answer."""

    name: str
    uid: str
    ready: bool
    terminating: bool = False
    address: str = ""
    state: GatewayState | None = None
    silent_seconds: float = 0.0
    """Since the last answer (or since the pod appeared)."""


@dataclass(frozen=True, slots=True)
class RouteParent:
    """What one controller says about the HTTPRoute, or an InferencePool, at one Gateway."""

    controller: str
    accepted: bool
    """Accepted, and every backend resolved."""
    observed_generation: int
    message: str = ""


@dataclass(frozen=True, slots=True)
class HttpRoute:
    """The HTTPRoute as the API server has it; what a Gateway really uses it does not say."""

    generation: int
    weights: Mapping[str, int]
    """Of the accelerated lane, by revision hash."""
    parents: tuple[RouteParent, ...] = ()


@dataclass(frozen=True, slots=True)
class Pool:
    """The InferencePool of a revision; what its Gateways say of it."""

    generation: int
    parents: tuple[RouteParent, ...] = ()


@dataclass(frozen=True, slots=True)
class SharedView:
    """How a resource stands at a shared gateway."""

    gateway: str
    joined: bool = False
    """Whether requests can be sent to it there."""
    others: tuple[str, ...] = ()
    """Other members."""
    differing: tuple[str, ...] = ()
    """Settings of the gateway that it says otherwise than they are in force."""
    lost_hosts: tuple[str, ...] = ()
    """Host names of its that another member has."""
    conflicts: tuple[str, ...] = ()
    """`Kind/name` of objects with the gateway's names that are not the gateway's."""


@dataclass(frozen=True, slots=True)
class CheckView:
    """The Job that checks a revision or fetches its models; `status.preflight` says which one."""

    report: PreflightReport | None = None
    """What it found, once it has passed."""
    termination: Termination | None = None
    """Its newest last word, if it ended badly."""
    waiting_reason: str = ""
    """Why its pod does not run."""
    progress: str = ""
    """How far a download is."""
    failure: str = ""
    """Why Kubernetes gave it up, or why nobody knows what it found; empty while it goes on."""


GROUP_MEMORY: Final = timedelta(hours=1)
"""How long a group that ended counts: as long as failed attempts (`maxRollbacksPerHour`)."""


def _phase(pod: WorkerPod) -> str:
    """How far a starting worker is, so that a slow start is not taken for a dead one."""
    digest = pod.digest
    if pod.ready or digest is None or digest.phase in ("Serving", "Draining", "Failed"):
        return ""
    detail = f" ({digest.phase_detail})" if digest.phase_detail else ""
    return f"{pod.name} is {digest.phase}{detail}."


def _why_not_ready(pod: WorkerPod) -> str:
    """The worker's own last words where Kubernetes only says that it crashes."""
    end = pod.termination
    loops = not pod.waiting_reason or pod.waiting_reason.startswith("CrashLoopBackOff")
    if pod.ready or end is None or not loops:
        return pod.waiting_reason or _phase(pod)
    return f"{end.reason}: {end.detail.partition(chr(10))[0][:400]}"


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Everything a pass may know. Times are UTC-aware."""

    now: datetime
    namespace: str
    name: str
    uid: str
    generation: int
    spec: SpeculativeDeploymentSpec
    status: SpeculativeDeploymentStatus
    words: Words
    """What the spec asks for."""
    annotations: Mapping[str, str] = field(default_factory=dict)
    findings: tuple[str, ...] = ()
    """Contradictions in the spec that are known without a pod; non-empty means Accepted=False."""
    warnings: tuple[str, ...] = ()
    """What can be rendered but often disappoints; shown beside Accepted, and nothing else."""
    conflicts: tuple[str, ...] = ()
    """`Kind/name` of objects with our names that are not ours."""
    refusals: tuple[str, ...] = ()
    """`Kind/name: words` of objects that the API server does not take as the spec wants them."""
    revisions: Mapping[str, RevisionRecord] = field(default_factory=dict)
    """By hash, in the newest rendering that was not taken back."""
    older_renders: tuple[RevisionRecord, ...] = ()
    deployments: Mapping[str, DeploymentView] = field(default_factory=dict)
    """By revision hash."""
    pods: tuple[WorkerPod, ...] = ()
    gateways: tuple[GatewayPod, ...] = ()
    autoscaler: AutoscalerView | None = None
    route: Route | None = None
    """The route as last written, from the ConfigMap."""
    shared: SharedView | None = None
    """With `gateway.mode: Shared`: how it stands there; `spec` has the settings in force."""
    http_route: HttpRoute | None = None
    """With `gateway.mode: GatewayAPI`: the route as last written."""
    pools: Mapping[str, Pool] = field(default_factory=dict)
    """With `gateway.backend: InferencePool`, by revision hash."""
    check: CheckView | None = None
    """Of the pre-flight that status says is under way; None without one."""
    models_in_use: tuple[str, ...] | None = None
    """Fetched models that the namespace's resources name; None: not looked up, for no Job that
    cleans up can begin."""
    node_news: NodeNews | None = None
    """Asked for only shortly before a canary that finds no room is given up."""
    missing_kinds: frozenset[str] = frozenset()
    """Kinds that this cluster does not have, or that we may not read."""

    @property
    def is_refused(self) -> bool:
        """Whether what the spec asks for can't be made, so that no revision begins."""
        return bool(self.findings) or self.lacks_groups

    @property
    def lacks_groups(self) -> bool:
        """Whether the spec asks for groups of pods, and nobody here makes any."""
        return self.spec.target.nodes_per_replica > 1 and "LeaderWorkerSet" in self.missing_kinds

    def pods_of(self, revision: str) -> tuple[WorkerPod, ...]:
        """The pods of one revision that are not on their way out."""
        return tuple(p for p in self.pods if p.revision == revision and not p.terminating)

    def crashes(self, revision: str) -> int:
        """Container restarts of one revision, less those that only wait for a hub that is away.

        Of a group that was made anew since a pod of it ended, one.
        """
        pods = self.pods_of(revision)
        there, away = {pod.uid for pod in pods}, WorkerReason.HUB_UNREACHABLE
        return sum(
            pod.restarts
            for pod in pods
            if pod.termination is None or pod.termination.reason != away
        ) + sum(
            entry.uid not in there and entry.reason != away
            for entry in self.group_failures(revision)
        )

    def group_failures(self, revision: str) -> tuple[GroupFailure, ...]:
        """Groups of a revision that ended within the hour; of a canary, in this trial."""
        canary = self.status.canary
        since = self.now - GROUP_MEMORY
        if canary is not None and canary.hash == revision:
            since = max(since, datetime.fromisoformat(canary.started_at))
        return tuple(
            entry
            for entry in self.status.group_failures
            if entry.hash == revision and datetime.fromisoformat(entry.at) >= since
        )

    def ends(self, revision: str) -> tuple[Termination, ...]:
        """Last words of a revision's pods, and of those of its groups that are gone."""
        said = (pod.termination for pod in self.pods_of(revision))
        return (
            *(end for end in said if end is not None),
            *(
                Termination(reason=entry.reason, retryable=entry.retryable, detail=entry.message)
                for entry in reversed(self.group_failures(revision))
            ),
        )

    def ready_pods(self, revision: str) -> int:
        """How many of them are ready."""
        return sum(pod.ready for pod in self.pods_of(revision))

    def waiting_reason(self, revision: str) -> str:
        """Why a pod of the revision does not run or does not exist; empty when all run."""
        refused = (words for words in self.refusals if f"-{revision}: " in words)
        waiting = (said for p in self.pods_of(revision) if (said := _why_not_ready(p)))
        view = self.deployments.get(revision)
        failure = (view.failure,) if view is not None and view.failure else ()
        ended = (f"{e.reason}: {e.detail.partition(chr(10))[0][:400]}" for e in self.ends(revision))
        return next(iter((*refused, *waiting, *failure, *ended)), "")
