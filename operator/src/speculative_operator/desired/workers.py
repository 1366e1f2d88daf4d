"""Worker pods: the pod template of a revision, and the Deployment around a template.

`pod_template` runs once per revision; its result is stored beside the words and
applied from there ever after, so that a newer operator replaces no worker pod.
"""

import json
import math
from collections.abc import Mapping
from typing import Any, Final

from speculative_api import labels
from speculative_api.v1alpha1 import (
    Adaptive,
    AdaptiveMode,
    Capacity,
    Method,
    Rollout,
    Speculation,
)
from speculative_api.worker import (
    ADDRESS_VARIABLE,
    CONFIG_VARIABLE,
    ENDPOINTS_FOLLOW_SECONDS,
    ENGINE_EXIT_SECONDS,
    Draft,
    EngineTls,
    Lora,
    NGram,
    Simulation,
    WorkerAdaptive,
    WorkerConfig,
    WorkerSpeculation,
    WorkerWarmup,
)
from speculative_operator.decision import Scale
from speculative_operator.desired import names
from speculative_operator.desired.revision import Revisioned, ngram_of, parse
from speculative_operator.desired.volumes import (
    CACHE_DIRECTORY,
    TLS_DIRECTORY,
    gpus_per_pod,
    volumes_of,
)
from speculative_operator.settings import Settings
from speculative_operator.snapshot import Words

GRACE_MARGIN_SECONDS: Final = 10
"""Between the last thing a worker waits for and the kubelet's SIGKILL."""
STARTUP_MARGIN_SECONDS: Final = 30
"""The kubelet gives up this much later than the worker, whose own verdict has the reason."""
IMAGE_PULL_SECONDS: Final = 1800
"""Allowance for pulling the image before a Deployment's progress deadline ends."""
_SHORT_START_SECONDS: Final = 600
RESERVED_VARIABLES: Final = frozenset({CONFIG_VARIABLE, "POD_NAME", "POD_REVISION"})
"""Variables that `pod.env` must not set."""

Template = dict[str, Any]


def worker_config(part: Revisioned, *, default_model_name: str) -> WorkerConfig:
    """What the worker is told; `default_model_name` stands in for an absent servedModelName."""
    target, engine = part.target, part.engine
    return WorkerConfig(
        model=target.model,
        served_model_name=target.served_model_name or default_model_name,
        tensor_parallel_size=target.tensor_parallel_size,
        pipeline_parallel_size=target.pipeline_parallel_size,
        data_parallel_size=target.data_parallel_size,
        nodes=target.nodes_per_replica if target.nodes_per_replica > 1 else None,
        dtype=target.dtype.value if target.dtype else None,
        quantization=target.quantization,
        kv_cache_dtype=target.kv_cache_dtype,
        max_model_len=target.max_model_len,
        trust_remote_code=target.trust_remote_code,
        lora=Lora(**target.lora.model_dump()) if target.lora else None,
        speculation=_speculation(part.speculation),
        engine_version=engine.version,
        allow_unknown_version=engine.allow_unknown_version,
        max_num_seqs=engine.max_num_seqs,
        gpu_memory_utilization_percent=engine.gpu_memory_utilization_percent,
        extra_args=list(engine.extra_args),
        startup_deadline_seconds=engine.startup_deadline_seconds,
        drain_seconds=engine.drain_seconds,
        numa_bind=part.pod.numa_bind,
        preflight=engine.preflight,
        heartbeat_seconds=engine.heartbeat_seconds,
        warmup=WorkerWarmup(**engine.warmup.model_dump()),
        tls=EngineTls(directory=TLS_DIRECTORY, server_name=engine.tls.server_name)
        if engine.tls
        else None,
        cache_directory=CACHE_DIRECTORY if part.model_cache else None,
        simulation=Simulation(**engine.simulation.model_dump(mode="json"))
        if engine.simulation
        else None,
    )


def _speculation(speculation: Speculation) -> WorkerSpeculation:
    draft, ngram = speculation.draft, None
    if speculation.method in (Method.NGRAM, Method.NGRAM_GPU):
        ngram = NGram(**ngram_of(speculation).model_dump())
    return WorkerSpeculation(
        method=speculation.method.value,
        num_speculative_tokens=speculation.num_speculative_tokens,
        draft=Draft(**draft.model_dump()) if draft else None,
        ngram=ngram,
        custom_class=speculation.custom_class,
        allow_lossy=speculation.allow_lossy is not None,
        adaptive=_adaptive(speculation.adaptive),
        extra=dict(speculation.extra or {}),
    )


def _adaptive(adaptive: Adaptive | None) -> WorkerAdaptive | None:
    if adaptive is None or adaptive.mode is AdaptiveMode.OFF:
        return None
    return WorkerAdaptive(**adaptive.model_dump(mode="json"))


def pod_template(words: Words, *, name: str, settings: Settings) -> Template:
    """The pod template of a new revision of resource `name`.

    Raises:
        pydantic.ValidationError: the words were not written by this API version.
    """
    part = parse(words.canonical)
    metadata: dict[str, Any] = {"labels": names.worker_labels(name, words.hash)}
    if part.pod.annotations:
        metadata["annotations"] = dict(part.pod.annotations)
    return {"metadata": metadata, "spec": _pod_spec(part, name, settings)}


def _pod_spec(part: Revisioned, name: str, settings: Settings) -> dict[str, Any]:
    pod, engine = part.pod, part.engine
    volumes, mounts = volumes_of(part)
    spec: dict[str, Any] = {
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": ENDPOINTS_FOLLOW_SECONDS
        + engine.drain_seconds
        + ENGINE_EXIT_SECONDS
        + GRACE_MARGIN_SECONDS,
        # Not runAsNonRoot: vLLM's own images run as root.
        "securityContext": {"seccompProfile": {"type": "RuntimeDefault"}},
        "tolerations": [
            {"key": pod.gpu_resource_name, "operator": "Exists"},
            *(dict(toleration) for toleration in pod.tolerations),
        ],
        "containers": [_container(part, name, mounts, settings)],
        "volumes": volumes,
    }
    optional: dict[str, Any] = {
        "nodeSelector": dict(pod.node_selector),
        "affinity": dict(pod.affinity or {}),
        "topologySpreadConstraints": [dict(item) for item in pod.topology_spread_constraints],
        "priorityClassName": pod.priority_class_name,
        "runtimeClassName": pod.runtime_class_name,
        "serviceAccountName": pod.service_account_name,
        "imagePullSecrets": [dict(secret) for secret in pod.image_pull_secrets],
    }
    return spec | {key: value for key, value in optional.items() if value}


def _literal(value: str) -> str:
    """An environment value that the kubelet leaves as it is: it expands `$(NAME)`, `$$` escapes."""
    return value.replace("$", "$$")


def _container(
    part: Revisioned, name: str, mounts: list[dict[str, Any]], settings: Settings
) -> dict[str, Any]:
    config = worker_config(part, default_model_name=name)
    revision_field = f"metadata.labels['{labels.REVISION}']"
    container: dict[str, Any] = {
        "name": "worker",
        "image": part.engine.image or settings.worker_image,
        "args": ["run"],
        "env": [
            {
                "name": CONFIG_VARIABLE,
                "value": _literal(config.model_dump_json(by_alias=True, exclude_none=True)),
            },
            {"name": "POD_NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
            {"name": "POD_REVISION", "valueFrom": {"fieldRef": {"fieldPath": revision_field}}},
            *_own_address(part),
            *(dict(variable) for variable in part.pod.env),
        ],
        "ports": [
            {"name": "http", "containerPort": labels.ENGINE_PORT},
            {"name": "worker", "containerPort": labels.WORKER_PORT},
        ],
        "resources": _resources(part),
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]} | ({"add": ["IPC_LOCK"]} if part.pod.rdma else {}),
        },
        "terminationMessagePolicy": "File",
        "volumeMounts": mounts,
        **_probes(part.engine.startup_deadline_seconds),
    }
    if part.pod.image_pull_policy:
        container["imagePullPolicy"] = part.pod.image_pull_policy
    return container


def _own_address(part: Revisioned) -> list[dict[str, Any]]:
    """By which address pods of a group reach each other, where the spec does not say another."""
    said = {variable.get("name") for variable in part.pod.env}
    if part.target.nodes_per_replica == 1 or ADDRESS_VARIABLE in said:
        return []
    return [{"name": ADDRESS_VARIABLE, "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}]


def _resources(part: Revisioned) -> dict[str, Any]:
    asked, pod, count = dict(part.pod.resources or {}), part.pod, gpus_per_pod(part)
    added = {pod.gpu_resource_name: str(count)} if count else {}
    if pod.rdma:
        added[pod.rdma.resource_name] = str(pod.rdma.count)
    if pod.huge_pages:
        added[f"hugepages-{pod.huge_pages.page_size}"] = pod.huge_pages.amount
    if not added:
        return asked
    return asked | {key: {**asked.get(key, {}), **added} for key in ("requests", "limits")}


def _probes(startup_deadline_seconds: int) -> dict[str, Any]:
    """Probes without initial delays: a small model waits for nothing, a big one is not killed.

    Timeouts are generous because a loading engine may keep every core busy.
    """
    period = 2 if startup_deadline_seconds <= _SHORT_START_SECONDS else 5
    patience = startup_deadline_seconds + STARTUP_MARGIN_SECONDS
    return {
        "startupProbe": _probe("/startupz", period, failures=math.ceil(patience / period)),
        "readinessProbe": _probe("/readyz", 2, failures=3),
        "livenessProbe": _probe("/livez", 10, failures=3),
    }


def _probe(path: str, period_seconds: int, *, failures: int) -> dict[str, Any]:
    return {
        "httpGet": {"path": path, "port": labels.WORKER_PORT},
        "periodSeconds": period_seconds,
        "timeoutSeconds": 5,
        "failureThreshold": failures,
    }


def worker_deployment(
    scale: Scale,
    template: Mapping[str, Any],
    *,
    name: str,
    metadata: dict[str, Any],
    rollout: Rollout | None = None,
    capacity: str = "",
    replicas: int | None = None,
) -> dict[str, Any]:
    """The Deployment of one revision around its stored template.

    Args:
        metadata: namespace and owner references, shared by all children.
        rollout: says whether a restarted pod's successor may come on top.
        capacity: which part of a divided revision (`spot.Part`); empty: all of it.
        replicas: pods of that part; None: all that the scale asks for.
    """
    surge = rollout is None or may_surge(rollout, scale.replicas)
    own_labels = names.worker_labels(name, scale.hash)
    if capacity:
        own_labels |= {labels.CAPACITY: capacity}
        pods = template["metadata"]
        template = {**template, "metadata": {**pods, "labels": {**pods["labels"], **own_labels}}}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {
            **metadata,
            "name": names.part(name, scale.hash, capacity),
            "labels": own_labels | {labels.TRACK: scale.track},
        },
        "spec": {
            "replicas": scale.replicas if replicas is None else replicas,
            "revisionHistoryLimit": 1,
            "progressDeadlineSeconds": _startup_deadline(template) + IMAGE_PULL_SECONDS,
            "strategy": {
                "type": "RollingUpdate",
                "rollingUpdate": {"maxSurge": int(surge), "maxUnavailable": int(not surge)},
            },
            "selector": {"matchLabels": names.selector(own_labels)},
            "template": template,
        },
    }


def _startup_deadline(template: Mapping[str, Any]) -> int:
    """The deadline that the template's worker was told, in seconds.

    Read from the template and not from the words: it has to fit the pods that
    run, whatever a newer operator makes of the same words.
    """
    for variable in template["spec"]["containers"][0].get("env", ()):
        if variable["name"] == CONFIG_VARIABLE:
            found = json.loads(variable["value"]).get("startupDeadlineSeconds")
            return int(found or WorkerConfig.model_fields["startup_deadline_seconds"].default)
    return int(WorkerConfig.model_fields["startup_deadline_seconds"].default)


def may_surge(rollout: Rollout, replicas: int) -> bool:
    """Whether a restarted pod's successor may come on top: there is room, or it is the only one."""
    if rollout.capacity is not Capacity.IN_PLACE:
        return True
    return replicas <= 1 and not rollout.allow_downtime
