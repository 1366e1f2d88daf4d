"""The Job that checks a revision's models before any of its pods holds a GPU.

Made from the revision's own pod template: the same image, nodes, volumes,
variables and account, but no GPU, no huge pages and no network device, and its
own small share of a node. Created once and never applied: a Job's template
can't change. `rollout.preflight_gates` decides when; status names the attempt.
"""

import copy
from collections.abc import Mapping
from typing import Any, Final

from speculative_api import labels
from speculative_operator.decision import Decision
from speculative_operator.desired import names
from speculative_operator.desired.workers import pod_template
from speculative_operator.settings import Settings
from speculative_operator.snapshot import Snapshot

CONTAINER: Final = "worker"
"""Name of the container, as in the template."""
REFUSED_EXIT: Final = 3
"""Exit code of a check that can never pass: the Job is not tried again."""
USER: Final = 65532
"""Not root: it reads a few files, and writes none."""
RESOURCES: Final = {
    "requests": {"cpu": "100m", "memory": "512Mi"},
    "limits": {"cpu": "1", "memory": "2Gi"},
}
"""Two vocabularies of a quarter of a million tokens take some 300 MB while they are compared."""
RETRIES: Final = 2
"""Kubernetes' own attempts after the first, 10 and 20 s apart; then the revision is parked."""
DEADLINE_MARGIN_SECONDS: Final = 60
"""Kubernetes gives up this much later than the operator, for when that is away."""

_ON_NODE_ONLY: Final = ("Memory", "HugePages-2Mi", "HugePages-1Gi")
_KEPT: Final = (
    "nodeSelector",
    "tolerations",
    "priorityClassName",
    "runtimeClassName",
    "serviceAccountName",
    "imagePullSecrets",
)

Body = dict[str, Any]


def preflight_jobs(
    snapshot: Snapshot, decision: Decision, settings: Settings, *, metadata: Mapping[str, Any]
) -> tuple[Body, ...]:
    """The Job of the check that status says is under way; none without one."""
    check = decision.status.preflight
    if check is None or check.outcome is not None or "Job" in snapshot.missing_kinds:
        return ()
    record = snapshot.revisions.get(check.hash)
    if record is not None:
        template: Mapping[str, Any] = record.template
    elif check.hash == snapshot.words.hash:
        template = pod_template(snapshot.words, name=snapshot.name, settings=settings)
    else:
        return ()
    own = names.component_labels(snapshot.name, labels.COMPONENT_PREFLIGHT)
    deadline = snapshot.spec.rollout.progress_deadline_seconds + DEADLINE_MARGIN_SECONDS
    job = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            **metadata,
            "name": names.preflight(snapshot.name, check.hash, check.started_at),
            "labels": own | {labels.REVISION: check.hash},
        },
        "spec": {
            "backoffLimit": RETRIES,
            "activeDeadlineSeconds": deadline,
            "podFailurePolicy": _failure_policy(),
            "template": {"metadata": {"labels": own}, "spec": _pod(template["spec"])},
        },
    }
    return (job,)


def _failure_policy() -> Body:
    """A drained node costs no attempt; a refusal needs no second one."""
    disrupted = [{"type": "DisruptionTarget", "status": "True"}]
    refused = {"containerName": CONTAINER, "operator": "In", "values": [REFUSED_EXIT]}
    return {
        "rules": [
            {"action": "Ignore", "onPodConditions": disrupted},
            {"action": "FailJob", "onExitCodes": refused},
        ]
    }


def _pod(worker: Mapping[str, Any]) -> Body:
    """A pod that the profile *restricted* takes, unless a model lies on the node."""
    volumes = [volume for volume in worker.get("volumes", ()) if not _is_memory(volume)]
    named = {volume["name"] for volume in volumes}
    spec: Body = {
        "restartPolicy": "Never",
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": 5,
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": USER,
            "runAsGroup": USER,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "containers": [_container(worker["containers"][0], named)],
        "volumes": copy.deepcopy(volumes),
    }
    # Of the affinity only what concerns nodes: where two workers may not share a node, or are
    # to be spread, a check that holds nothing would wait for a free one.
    nodes = (worker.get("affinity") or {}).get("nodeAffinity")
    spec |= {"affinity": {"nodeAffinity": copy.deepcopy(nodes)}} if nodes else {}
    return spec | {key: copy.deepcopy(worker[key]) for key in _KEPT if key in worker}


def _container(worker: Mapping[str, Any], volumes: set[str]) -> Body:
    # A GPU runtime shows every GPU of the node to a container that asks for none.
    hidden = "NVIDIA_VISIBLE_DEVICES"
    variables = [item for item in worker.get("env", ()) if item["name"] != hidden]
    mounts = [item for item in worker.get("volumeMounts", ()) if item["name"] in volumes]
    container: Body = {
        "name": CONTAINER,
        "image": worker["image"],
        "args": ["preflight"],
        "env": [*copy.deepcopy(variables), {"name": hidden, "value": "void"}],
        "resources": copy.deepcopy(RESOURCES),
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
        "terminationMessagePolicy": "File",
        "volumeMounts": [{**item, "readOnly": True} for item in mounts],
    }
    if "imagePullPolicy" in worker:
        container["imagePullPolicy"] = worker["imagePullPolicy"]
    return container


def _is_memory(volume: Mapping[str, Any]) -> bool:
    return (volume.get("emptyDir") or {}).get("medium") in _ON_NODE_ONLY
