"""The kinds of objects the operator reads and writes, and where the API server keeps them.

Every request path is made here, so the chart's RBAC can be compared with this table.
"""

from dataclasses import dataclass
from typing import Any, Final

from speculative_api import labels

JSON = dict[str, Any]
Key = tuple[str, str]
"""Namespace and name of a SpeculativeDeployment, or of a shared gateway after `SHARED_PREFIX`."""
SHARED_PREFIX: Final = "shared/"
"""No object's name has a slash in it."""


@dataclass(frozen=True, slots=True)
class Resource:
    """One kind; all of ours are namespaced."""

    api_version: str
    kind: str
    plural: str
    optional: bool = False
    """Whether a cluster may not have it: then nothing waits for its first list."""

    def path(self, namespace: str = "", name: str = "", subresource: str = "") -> str:
        """The request path; an empty namespace means all of them."""
        group = "/apis/" if "/" in self.api_version else "/api/"
        parts = [group + self.api_version]
        parts += [f"namespaces/{namespace}"] if namespace else []
        parts += [part for part in (self.plural, name, subresource) if part]
        return "/".join(parts)


SPECULATIVE_DEPLOYMENT: Final = Resource(
    f"{labels.GROUP}/{labels.VERSION}", labels.KIND, labels.PLURAL
)
CONTROLLER_REVISION: Final = Resource("apps/v1", "ControllerRevision", "controllerrevisions")
DEPLOYMENT: Final = Resource("apps/v1", "Deployment", "deployments")
SERVICE: Final = Resource("v1", "Service", "services")
CONFIG_MAP: Final = Resource("v1", "ConfigMap", "configmaps")
SERVICE_ACCOUNT: Final = Resource("v1", "ServiceAccount", "serviceaccounts")
ROLE_BINDING: Final = Resource("rbac.authorization.k8s.io/v1", "RoleBinding", "rolebindings")
DISRUPTION_BUDGET: Final = Resource("policy/v1", "PodDisruptionBudget", "poddisruptionbudgets")
HTTP_ROUTE: Final = Resource(
    "gateway.networking.k8s.io/v1", "HTTPRoute", "httproutes", optional=True
)
INFERENCE_POOL: Final = Resource(
    "inference.networking.k8s.io/v1", "InferencePool", "inferencepools", optional=True
)
AUTOSCALER: Final = Resource(
    "autoscaling/v2", "HorizontalPodAutoscaler", "horizontalpodautoscalers"
)
JOB: Final = Resource("batch/v1", "Job", "jobs", optional=True)
"""Optional, so that an operator whose chart does not grant it yet serves on without."""
SCALED_OBJECT: Final = Resource("keda.sh/v1alpha1", "ScaledObject", "scaledobjects", optional=True)
LEADER_WORKER_SET: Final = Resource(
    "leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet", "leaderworkersets", optional=True
)
POD: Final = Resource("v1", "Pod", "pods")
EVENT: Final = Resource("v1", "Event", "events")
SECRET: Final = Resource("v1", "Secret", "secrets")
"""Read one at a time, and only where a Role of the namespace's own allows it."""
LEASE: Final = Resource("coordination.k8s.io/v1", "Lease", "leases")

CHILDREN: Final = (
    CONTROLLER_REVISION,
    SERVICE_ACCOUNT,
    ROLE_BINDING,
    SERVICE,
    DEPLOYMENT,
    LEADER_WORKER_SET,
    CONFIG_MAP,
    DISRUPTION_BUDGET,
    HTTP_ROUTE,
    INFERENCE_POOL,
    AUTOSCALER,
    JOB,
    SCALED_OBJECT,
)
"""What the operator creates and prunes."""
WATCHED: Final = (SPECULATIVE_DEPLOYMENT, *CHILDREN, POD)
BY_KIND: Final = {resource.kind: resource for resource in WATCHED}


def uid_of(thing: JSON) -> str:
    """The object's UID; empty when it has none yet."""
    return str(thing.get("metadata", {}).get("uid", ""))


def controller_uid(thing: JSON) -> str:
    """UID of the object's controller; empty when nobody controls it."""
    for owner in thing.get("metadata", {}).get("ownerReferences", ()):
        if owner.get("controller"):
            return str(owner.get("uid", ""))
    return ""
