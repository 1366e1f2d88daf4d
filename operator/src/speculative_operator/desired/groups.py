"""A revision whose replicas are groups of pods: one LeaderWorkerSet around its template.

The leader's pod is the revision's own: it alone serves, is asked and is counted. The
other pods of a group are made of the same template, with another label and command.
Read from LeaderWorkerSet 0.8, https://lws.sigs.k8s.io/docs/reference/leaderworkerset.v1.
"""

from collections.abc import Mapping
from typing import Any, Final

from speculative_api import labels
from speculative_api.v1alpha1 import Rollout
from speculative_operator.decision import Scale
from speculative_operator.desired import names
from speculative_operator.desired.workers import Template, may_surge

API_VERSION: Final = "leaderworkerset.x-k8s.io/v1"
KIND: Final = "LeaderWorkerSet"
FOLLOW: Final = "follow"
"""The worker's command in a pod that is no leader."""


def nodes_of(words: Mapping[str, Any]) -> int:
    """Pods of one replica, by a revision's words."""
    return int((words.get("target") or {}).get("nodesPerReplica", 1))


def worker_groups(
    scale: Scale,
    template: Template,
    *,
    nodes: int,
    name: str,
    metadata: dict[str, Any],
    rollout: Rollout,
) -> dict[str, Any]:
    """The LeaderWorkerSet of one revision around its stored template.

    A pod that ends or restarts takes its group along: an engine whose parts are of
    different age does not work. The controller makes a headless Service of the set's
    name, for the pods among themselves, which is why that is not the revision's.
    """
    surge = may_surge(rollout, scale.replicas)
    return {
        "apiVersion": API_VERSION,
        "kind": KIND,
        "metadata": {
            **metadata,
            "name": names.groups(name, scale.hash),
            "labels": names.worker_labels(name, scale.hash) | {labels.TRACK: scale.track},
        },
        "spec": {
            "replicas": scale.replicas,
            "startupPolicy": "LeaderCreated",
            "networkConfig": {"subdomainPolicy": "Shared"},
            "rolloutStrategy": {
                "type": "RollingUpdate",
                "rollingUpdateConfiguration": {
                    "maxSurge": int(surge),
                    "maxUnavailable": int(not surge),
                },
            },
            "leaderWorkerTemplate": {
                "size": nodes,
                "restartPolicy": "RecreateGroupOnPodRestart",
                "leaderTemplate": template,
                "workerTemplate": _follower(template),
            },
        },
    }


def _follower(template: Template) -> Template:
    metadata, spec = template["metadata"], template["spec"]
    own = metadata["labels"] | {labels.COMPONENT: labels.COMPONENT_FOLLOWER}
    container, *others = spec["containers"]
    return {
        **template,
        "metadata": {**metadata, "labels": own},
        "spec": {**spec, "containers": [{**container, "args": [FOLLOW]}, *others]},
    }
