"""A gateway's objects: Deployment, Service, ServiceAccount, RoleBinding, budget.

Its template depends on the resource and on the gateway image only: an operator
upgrade that leaves the image alone rolls no gateway, and neither does scaling.
"""

from dataclasses import dataclass
from typing import Any, Final

from speculative_api import labels
from speculative_api.v1alpha1 import Gateway
from speculative_operator.decision import Decision
from speculative_operator.desired import names
from speculative_operator.desired.engine_tls import authorities
from speculative_operator.desired.gateway_pod import with_authorities, with_options
from speculative_operator.desired.services import service_of
from speculative_operator.settings import Settings
from speculative_operator.snapshot import Snapshot

DIRECTORY: Final = "/run/gateway"
"""Memory volume that supervisor and agent share."""
USER: Final = 65532
GRACE_SECONDS: Final = 7220
"""The longest `engine.drainSeconds`, 10 s in which Envoy itself ends, 10 s for traffic to follow.

The drain that is wanted comes with the route: were it the grace period itself, a new value
would replace the gateway's pods.
"""
_RESTRICTED: Final[dict[str, Any]] = {
    "allowPrivilegeEscalation": False,
    "readOnlyRootFilesystem": True,
    "capabilities": {"drop": ["ALL"]},
}


@dataclass(frozen=True, slots=True)
class Wanted:
    """One gateway, of one resource or of several."""

    name: str
    """Of its objects."""
    metadata: dict[str, Any]
    """Namespace and owners."""
    labels: dict[str, str]
    settings: Gateway
    accesses: tuple[Gateway, ...]
    """Whom it lets in and how often: one for all, or each member's."""
    told: tuple[tuple[str, str], ...]
    """Variables that say whose routes it reads."""
    vouching: tuple[str, ...]
    """Secrets that vouch for engines."""


def gateway_objects(
    snapshot: Snapshot, decision: Decision, settings: Settings, *, metadata: dict[str, Any]
) -> tuple[dict[str, Any], ...]:
    """Everything the gateway needs, in creation order."""
    wanted = Wanted(
        name=names.gateway(snapshot.name),
        metadata=metadata,
        labels=names.component_labels(snapshot.name, labels.COMPONENT_GATEWAY),
        settings=snapshot.spec.gateway,
        accesses=(snapshot.spec.gateway,),
        told=(("SD_NAME", snapshot.name), ("ROUTE_CONFIGMAP", names.route(snapshot.name))),
        vouching=authorities(snapshot, decision),
    )
    return objects_of(wanted, settings)


def objects_of(wanted: Wanted, settings: Settings) -> tuple[dict[str, Any], ...]:
    """Everything that this gateway needs but its routes, in creation order."""
    shown = {**wanted.metadata, "name": wanted.name, "labels": wanted.labels}
    found = (
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": shown},
        _role_binding(wanted, settings, shown),
        service_of(wanted.settings, shown, wanted.labels),
        _deployment(wanted, settings, shown),
    )
    if wanted.settings.replicas < 2:
        return found
    return (*found, _disruption_budget(shown))


def _role_binding(wanted: Wanted, settings: Settings, shown: dict[str, Any]) -> dict[str, Any]:
    """Binds the chart's ClusterRole inside this namespace; the operator cannot grant more."""
    account = {
        "kind": "ServiceAccount",
        "name": wanted.name,
        "namespace": wanted.metadata["namespace"],
    }
    return {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "RoleBinding",
        "metadata": shown,
        "roleRef": {
            "apiGroup": "rbac.authorization.k8s.io",
            "kind": "ClusterRole",
            "name": settings.gateway_cluster_role,
        },
        "subjects": [account],
    }


def _disruption_budget(shown: dict[str, Any]) -> dict[str, Any]:
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": shown,
        "spec": {
            "maxUnavailable": 1,
            "selector": {"matchLabels": names.selector(shown["labels"])},
        },
    }


def _deployment(wanted: Wanted, settings: Settings, shown: dict[str, Any]) -> dict[str, Any]:
    selector = names.selector(wanted.labels)
    pod = with_options(
        _pod_spec(wanted, settings, selector), wanted.settings, wanted.accesses, group=USER
    )
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": shown,
        "spec": {
            "replicas": wanted.settings.replicas,
            "revisionHistoryLimit": 2,
            "strategy": {
                "type": "RollingUpdate",
                "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0},
            },
            "selector": {"matchLabels": selector},
            "template": {
                "metadata": {"labels": wanted.labels},
                "spec": with_authorities(pod, wanted.vouching, group=USER),
            },
        },
    }


def _pod_spec(wanted: Wanted, settings: Settings, selector: dict[str, str]) -> dict[str, Any]:
    env: list[dict[str, Any]] = [
        {"name": "NAMESPACE", "valueFrom": {"fieldRef": {"fieldPath": "metadata.namespace"}}},
        {"name": "POD_NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
        *({"name": name, "value": value} for name, value in wanted.told),
        {"name": "GATEWAY_DIRECTORY", "value": DIRECTORY},
        # The whole grace period; the supervisor stops Envoy 10 s before its end at the latest.
        {"name": "DRAIN_SECONDS", "value": str(GRACE_SECONDS)},
    ]
    envoy = _container("envoy", "supervise", settings, env, cpu="250m", memory=("128Mi", "512Mi"))
    envoy["ports"] = [{"name": "http", "containerPort": labels.GATEWAY_PORT}]
    agent = _container("agent", "keep", settings, env, cpu="100m", memory=("96Mi", "256Mi"))
    agent["ports"] = [{"name": "agent", "containerPort": labels.AGENT_PORT}]
    agent["readinessProbe"] = _probe("/readyz", 2)
    agent["livenessProbe"] = _probe("/livez", 10)
    return {
        "serviceAccountName": wanted.name,
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": GRACE_SECONDS,
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": USER,
            "runAsGroup": USER,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        # Also with one replica, so that scaling up does not roll the first pod.
        "topologySpreadConstraints": [
            {
                "maxSkew": 1,
                "topologyKey": "kubernetes.io/hostname",
                "whenUnsatisfiable": "ScheduleAnyway",
                "labelSelector": {"matchLabels": selector},
            }
        ],
        "containers": [envoy, agent],
        "volumes": [{"name": "shared", "emptyDir": {"medium": "Memory", "sizeLimit": "64Mi"}}],
    }


def _container(
    name: str,
    command: str,
    settings: Settings,
    env: list[dict[str, Any]],
    *,
    cpu: str,
    memory: tuple[str, str],
) -> dict[str, Any]:
    """A container; `cpu` is its share beside engines that take all they get, not a limit."""
    requested, limit = memory
    return {
        "name": name,
        "image": settings.gateway_image,
        "imagePullPolicy": settings.image_pull_policy,
        "args": [command],
        "env": env,
        "resources": {
            "requests": {"cpu": cpu, "memory": requested},
            "limits": {"memory": limit},
        },
        "securityContext": _RESTRICTED,
        "volumeMounts": [{"name": "shared", "mountPath": DIRECTORY}],
    }


def _probe(path: str, period_seconds: int) -> dict[str, Any]:
    return {
        "httpGet": {"path": path, "port": labels.AGENT_PORT},
        "periodSeconds": period_seconds,
        "timeoutSeconds": 5,
        "failureThreshold": 3,
    }
