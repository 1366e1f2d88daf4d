"""The gateway of one resource: Deployment, Service, ServiceAccount, RoleBinding, budget.

Its template depends on the resource and on the gateway image only: an operator
upgrade that leaves the image alone rolls no gateway, and neither does scaling.
"""

from typing import Any, Final

from speculative_api import labels
from speculative_operator.decision import Decision
from speculative_operator.desired import names
from speculative_operator.desired.engine_tls import authorities
from speculative_operator.desired.gateway_pod import with_authorities, with_options
from speculative_operator.desired.services import users_service
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


def gateway_objects(
    snapshot: Snapshot, decision: Decision, settings: Settings, *, metadata: dict[str, Any]
) -> tuple[dict[str, Any], ...]:
    """Everything the gateway needs, in creation order."""
    shared = {
        **metadata,
        "name": names.gateway(snapshot.name),
        "labels": names.component_labels(snapshot.name, labels.COMPONENT_GATEWAY),
    }
    found = (
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": shared},
        _role_binding(snapshot, settings, shared),
        users_service(snapshot, decision, metadata=metadata),
        _deployment(snapshot, settings, shared, authorities(snapshot, decision)),
    )
    if snapshot.spec.gateway.replicas < 2:
        return found
    return (*found, _disruption_budget(snapshot, shared))


def _role_binding(snapshot: Snapshot, settings: Settings, shared: dict[str, Any]) -> dict[str, Any]:
    """Binds the chart's ClusterRole inside this namespace; the operator cannot grant more."""
    account = {
        "kind": "ServiceAccount",
        "name": names.gateway(snapshot.name),
        "namespace": snapshot.namespace,
    }
    return {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "RoleBinding",
        "metadata": shared,
        "roleRef": {
            "apiGroup": "rbac.authorization.k8s.io",
            "kind": "ClusterRole",
            "name": settings.gateway_cluster_role,
        },
        "subjects": [account],
    }


def _disruption_budget(snapshot: Snapshot, shared: dict[str, Any]) -> dict[str, Any]:
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": shared,
        "spec": {
            "maxUnavailable": 1,
            "selector": {"matchLabels": names.selector(shared["labels"])},
        },
    }


def _deployment(
    snapshot: Snapshot, settings: Settings, shared: dict[str, Any], vouching: tuple[str, ...]
) -> dict[str, Any]:
    selector = names.selector(shared["labels"])
    pod = _pod_spec(snapshot.name, settings, selector)
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": shared,
        "spec": {
            "replicas": snapshot.spec.gateway.replicas,
            "revisionHistoryLimit": 2,
            "strategy": {
                "type": "RollingUpdate",
                "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0},
            },
            "selector": {"matchLabels": selector},
            "template": {
                "metadata": {"labels": shared["labels"]},
                "spec": with_authorities(
                    with_options(pod, snapshot.spec.gateway, group=USER), vouching, group=USER
                ),
            },
        },
    }


def _pod_spec(name: str, settings: Settings, selector: dict[str, str]) -> dict[str, Any]:
    env: list[dict[str, Any]] = [
        {"name": "NAMESPACE", "valueFrom": {"fieldRef": {"fieldPath": "metadata.namespace"}}},
        {"name": "POD_NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
        {"name": "SD_NAME", "value": name},
        {"name": "ROUTE_CONFIGMAP", "value": names.route(name)},
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
        "serviceAccountName": names.gateway(name),
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
