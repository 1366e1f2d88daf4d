"""The Jobs that check and fetch a revision's models before any of its pods holds a GPU.

Made from the revision's own pod template: the same image, nodes, volumes,
variables and account, but no GPU, no huge pages and no network device, and its
own small share of a node. Created once and never applied: a Job's template
can't change. `rollout.preflight_gates` decides when; status names the attempt.
"""

import copy
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from speculative_api import labels
from speculative_api.v1alpha1 import CleanUpMode
from speculative_api.worker import CLEAN_UP_VARIABLE, CacheCleanUp
from speculative_operator.decision import Decision
from speculative_operator.desired import names
from speculative_operator.desired.volumes import CACHE_DIRECTORY
from speculative_operator.desired.workers import pod_template
from speculative_operator.settings import Settings
from speculative_operator.snapshot import Snapshot

CONTAINER: Final = "worker"
"""Name of the container, as in the template."""
REFUSED_EXIT: Final = 3
"""Exit code of a check that can never pass: the Job is not tried again."""
USER: Final = 65532
"""Not root: it reads a few files, and writes none."""
_NOBODY: Final = {"runAsNonRoot": True, "runAsUser": USER, "runAsGroup": USER}
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


@dataclass(frozen=True, slots=True)
class _Stage:
    """What differs between the Jobs."""

    command: str
    component: str
    writes: bool
    """Whether it fills the cache."""
    resources: Body


_STAGES: Final = {
    # Two vocabularies of a quarter of a million tokens take some 300 MB while they are compared.
    "Check": _Stage(
        "preflight",
        labels.COMPONENT_PREFLIGHT,
        writes=False,
        resources={
            "requests": {"cpu": "100m", "memory": "512Mi"},
            "limits": {"cpu": "1", "memory": "2Gi"},
        },
    ),
    # Several files at a time, and checksums; the page cache counts, and is given back.
    "Download": _Stage(
        "download",
        labels.COMPONENT_DOWNLOAD,
        writes=True,
        resources={
            "requests": {"cpu": "500m", "memory": "1Gi"},
            "limits": {"cpu": "4", "memory": "8Gi"},
        },
    ),
}


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
    stage, wish = _STAGES[check.stage], _clean_up(snapshot)
    own = names.component_labels(snapshot.name, stage.component)
    deadline = snapshot.spec.rollout.progress_deadline_seconds + DEADLINE_MARGIN_SECONDS
    job = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            **metadata,
            "name": names.preflight(snapshot.name, check.hash, check.started_at, stage=check.stage),
            "labels": own | {labels.REVISION: check.hash},
        },
        "spec": {
            "backoffLimit": RETRIES,
            "activeDeadlineSeconds": deadline,
            "podFailurePolicy": _failure_policy(),
            "template": {"metadata": {"labels": own}, "spec": _pod(template["spec"], stage, wish)},
        },
    }
    return (job,)


def _clean_up(snapshot: Snapshot) -> CacheCleanUp | None:
    """What the Job is to do with models that nobody uses; None: it leaves the cache alone."""
    asked, in_use = snapshot.spec.rollout.clean_up, snapshot.models_in_use
    if asked is None or in_use is None:
        return None
    return CacheCleanUp(
        removes=asked.mode is CleanUpMode.REMOVE, unused_hours=asked.unused_hours, in_use=in_use
    )


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


def _pod(worker: Mapping[str, Any], stage: _Stage, wish: CacheCleanUp | None) -> Body:
    """A pod on the same kind of node that holds nothing of it.

    The check is one that the profile *restricted* takes, unless a model lies on the node; a
    download writes what the workers read and runs as they do.
    """
    volumes = [volume for volume in worker.get("volumes", ()) if not _is_memory(volume)]
    named = {volume["name"] for volume in volumes}
    spec: Body = {
        "restartPolicy": "Never",
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": 5,
        "securityContext": {
            **({} if stage.writes else _NOBODY),
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "containers": [_container(worker["containers"][0], named, stage, wish)],
        "volumes": copy.deepcopy(volumes),
    }
    # Of the affinity only what concerns nodes: where two workers may not share a node, or are
    # to be spread, a check that holds nothing would wait for a free one.
    nodes = (worker.get("affinity") or {}).get("nodeAffinity")
    spec |= {"affinity": {"nodeAffinity": copy.deepcopy(nodes)}} if nodes else {}
    return spec | {key: copy.deepcopy(worker[key]) for key in _KEPT if key in worker}


def _container(
    worker: Mapping[str, Any], volumes: set[str], stage: _Stage, wish: CacheCleanUp | None
) -> Body:
    # A GPU runtime shows every GPU of the node to a container that asks for none.
    hidden = "NVIDIA_VISIBLE_DEVICES"
    variables = [item for item in worker.get("env", ()) if item["name"] != hidden]
    if wish is not None:
        said = wish.model_dump_json(by_alias=True)
        variables.append({"name": CLEAN_UP_VARIABLE, "value": said})
    mounts = [item for item in worker.get("volumeMounts", ()) if item["name"] in volumes]
    container: Body = {
        "name": CONTAINER,
        "image": worker["image"],
        "args": [stage.command],
        "env": [*copy.deepcopy(variables), {"name": hidden, "value": "void"}],
        "resources": copy.deepcopy(stage.resources),
        "securityContext": {
            "allowPrivilegeEscalation": False,
            **({} if stage.writes else {"readOnlyRootFilesystem": True}),
            "capabilities": {"drop": ["ALL"]},
        },
        "terminationMessagePolicy": "File",
        "volumeMounts": [_mount(item, stage) for item in mounts],
    }
    if "imagePullPolicy" in worker:
        container["imagePullPolicy"] = worker["imagePullPolicy"]
    return container


def _mount(mount: Mapping[str, Any], stage: _Stage) -> Body:
    is_cache = mount["mountPath"] == CACHE_DIRECTORY
    return dict(mount) if stage.writes and is_cache else {**mount, "readOnly": True}


def _is_memory(volume: Mapping[str, Any]) -> bool:
    return (volume.get("emptyDir") or {}).get("medium") in _ON_NODE_ONLY
