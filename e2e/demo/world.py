"""One look at the demo's resource, its pods and its gateways."""

from dataclasses import dataclass, field
from typing import Any

from speculative_api import labels
from speculative_api.gateway import GatewayState
from speculative_api.v1alpha1 import Condition, SpeculativeDeploymentStatus

from .errors import DemoError
from .kube import Kube


@dataclass(frozen=True, slots=True)
class PodView:
    """One pod, as the API server says."""

    name: str
    uid: str
    revision: str
    """Empty for gateway pods."""
    component: str
    ready: bool
    terminating: bool
    restarts: int
    waiting: str = ""

    @property
    def identity(self) -> tuple[str, int]:
        """What a restart or a replacement would change."""
        return self.uid, self.restarts


@dataclass(frozen=True, slots=True)
class World:
    """What was seen at one moment; `at` is seconds since the demo began."""

    at: float
    generation: int
    status: SpeculativeDeploymentStatus
    pods: tuple[PodView, ...] = ()
    gateways: tuple[GatewayState, ...] = ()
    """Answers of the gateway agents that answered."""
    tracks: dict[str, str] = field(default_factory=dict)
    """Revision hash by track, from the worker Deployments."""

    @property
    def current(self) -> bool:
        """Whether the operator has looked at the newest spec."""
        return self.status.observed_generation >= self.generation

    def workers(self, revision: str) -> tuple[PodView, ...]:
        """The pods of one revision, leaving ones included."""
        return tuple(pod for pod in self.pods if pod.revision == revision)

    def condition(self, kind: str) -> Condition | None:
        """One condition; None before it was written."""
        return next((c for c in self.status.conditions if c.type == kind), None)

    def is_true(self, kind: str) -> bool:
        """Whether a condition holds for the newest spec."""
        found = self.condition(kind)
        return self.current and found is not None and found.status == "True"

    def weight_in_envoy(self, revision: str) -> int | None:
        """The highest percent any gateway's Envoy uses for a revision; None: nobody answered."""
        if not self.gateways:
            return None
        weights = [c.weight for g in self.gateways for c in g.clusters if c.hash == revision]
        return max(weights, default=0)


def pod_view(raw: dict[str, Any]) -> PodView:
    """Reads a raw pod."""
    metadata, status = raw["metadata"], raw.get("status", {})
    marks = metadata.get("labels", {})
    containers = status.get("containerStatuses", [])
    conditions = {c["type"]: c for c in status.get("conditions", [])}
    scheduled = conditions.get("PodScheduled", {})
    waiting = [
        c["state"]["waiting"].get("reason", "") for c in containers if "waiting" in c["state"]
    ]
    if scheduled.get("status") == "False":
        waiting.append(f"{scheduled.get('reason', '')}: {scheduled.get('message', '')}")
    return PodView(
        name=metadata["name"],
        uid=metadata["uid"],
        revision=marks.get(labels.REVISION, ""),
        component=marks.get(labels.COMPONENT, ""),
        ready=conditions.get("Ready", {}).get("status") == "True",
        terminating="deletionTimestamp" in metadata,
        restarts=sum(c.get("restartCount", 0) for c in containers),
        waiting=", ".join(waiting),
    )


class Observer:
    """Looks at one resource."""

    def __init__(self, kube: Kube, *, namespace: str, name: str) -> None:
        self._kube = kube
        self.namespace = namespace
        self.name = name
        self._selector = f"labelSelector={labels.NAME}%3D{name}"

    @property
    def path(self) -> str:
        """The API path of the resource."""
        return (
            f"/apis/{labels.GROUP}/{labels.VERSION}/namespaces/{self.namespace}"
            f"/{labels.PLURAL}/{self.name}"
        )

    async def raw_pods(self) -> list[dict[str, Any]]:
        """The resource's pods, raw."""
        path = f"/api/v1/namespaces/{self.namespace}/pods?{self._selector}"
        found = await self._kube.look(path)
        return list(found["items"]) if found else []

    async def look(self, at: float) -> World:
        """One look.

        Raises:
            DemoError: the resource is gone, or the API server does not answer.
        """
        raw = await self._kube.look(self.path)
        if raw is None:
            raise DemoError(f"{self.namespace}/{self.name} does not exist")
        pods = tuple(pod_view(pod) for pod in await self.raw_pods())
        deployments = await self._kube.look(
            f"/apis/apps/v1/namespaces/{self.namespace}/deployments?{self._selector}"
        )
        states = [
            await self._kube.ask_pod(self.namespace, pod.name, labels.AGENT_PORT, "/state")
            for pod in pods
            if pod.component == labels.COMPONENT_GATEWAY
        ]
        marks = [item["metadata"].get("labels", {}) for item in deployments["items"]]
        return World(
            at=at,
            generation=raw["metadata"]["generation"],
            status=SpeculativeDeploymentStatus.model_validate(raw.get("status", {})),
            pods=pods,
            gateways=tuple(GatewayState.model_validate(state) for state in states if state),
            tracks={
                m[labels.TRACK]: m.get(labels.REVISION, "") for m in marks if labels.TRACK in m
            },
        )
