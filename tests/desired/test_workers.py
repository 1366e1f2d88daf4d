"""Worker pods: probes and grace that fit the deadlines, volumes, GPUs, the worker's config."""

import json
from typing import Any

import pytest
from tests.builders import a_raw_spec

from speculative_api.v1alpha1 import Rollout, SpeculativeDeploymentSpec
from speculative_api.worker import CONFIG_VARIABLE, WorkerConfig
from speculative_operator.decision import Scale
from speculative_operator.desired.revision import words_of
from speculative_operator.desired.workers import pod_template, worker_deployment
from speculative_operator.settings import Settings


def template_of(**changes: Any) -> dict[str, Any]:
    spec = SpeculativeDeploymentSpec.model_validate(a_raw_spec(**changes))
    return pod_template(words_of(spec), name="chat", settings=Settings(worker_image="default:1"))


def container_of(**changes: Any) -> dict[str, Any]:
    (container,) = template_of(**changes)["spec"]["containers"]
    return container  # type: ignore[no-any-return]


def config_of(**changes: Any) -> WorkerConfig:
    (text,) = [
        variable["value"]
        for variable in container_of(**changes)["env"]
        if variable["name"] == CONFIG_VARIABLE
    ]
    return WorkerConfig.model_validate_json(text.replace("$$", "$"))


@pytest.mark.parametrize("deadline", [5, 600, 601, 1800, 86_400])
def test_the_kubelet_and_the_deployment_wait_longer_than_the_worker(deadline: int) -> None:
    template = template_of(engine={"startupDeadlineSeconds": deadline})
    probe = template["spec"]["containers"][0]["startupProbe"]
    assert probe["failureThreshold"] * probe["periodSeconds"] > deadline
    assert probe["periodSeconds"] <= 5
    scale = Scale("0123456789", "stable", 1)
    deployment = worker_deployment(scale, template, name="chat", metadata={})
    patience = probe["failureThreshold"] * probe["periodSeconds"]
    assert deployment["spec"]["progressDeadlineSeconds"] > patience


def test_no_probe_has_an_initial_delay() -> None:
    assert "initialDelaySeconds" not in json.dumps(container_of())


@pytest.mark.parametrize("drain", [0, 120, 7200])
def test_grace_covers_endpoints_drain_and_engine_exit(drain: int) -> None:
    spec = template_of(engine={"drainSeconds": drain})["spec"]
    assert spec["terminationGracePeriodSeconds"] == 10 + drain + 30 + 10


@pytest.mark.parametrize(
    ("target", "gpus"),
    [
        ({}, "1"),
        ({"tensorParallelSize": 2}, "2"),
        ({"tensorParallelSize": 4, "pipelineParallelSize": 2}, "8"),
        ({"tensorParallelSize": 2, "dataParallelSize": 4}, "8"),
    ],
)
def test_gpus_are_tensor_times_pipeline_times_data_parallel(
    target: dict[str, Any], gpus: str
) -> None:
    container = container_of(target={"model": "hf://o/n", **target})
    assert container["resources"]["limits"] == {"nvidia.com/gpu": gpus}
    assert container["resources"]["requests"] == {"nvidia.com/gpu": gpus}


def test_a_simulated_engine_asks_for_no_gpu() -> None:
    assert container_of(engine={"simulation": {}})["resources"] == {}


def test_the_gpu_taint_is_tolerated_whatever_its_value() -> None:
    spec = template_of(pod={"gpuResourceName": "amd.com/gpu"})["spec"]
    assert {"key": "amd.com/gpu", "operator": "Exists"} in spec["tolerations"]


def test_shared_memory_is_memory_backed_and_bounded_on_request() -> None:
    volumes = template_of(pod={"shmSize": "2Gi"})["spec"]["volumes"]
    assert {
        "name": "shared-memory",
        "emptyDir": {"medium": "Memory", "sizeLimit": "2Gi"},
    } in volumes


def mounts_of(**changes: Any) -> dict[str, bool]:
    """Mount path -> read-only, /dev/shm left out."""
    return {
        mount["mountPath"]: mount.get("readOnly", False)
        for mount in container_of(**changes)["volumeMounts"]
        if mount["mountPath"] != "/dev/shm"
    }


def a_draft(model: str) -> dict[str, Any]:
    return {"method": "DraftModel", "numSpeculativeTokens": 3, "draft": {"model": model}}


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"target": {"model": "file:///m/t"}}, {"/m/t": True}),
        (
            {"target": {"model": "file:///m/t/"}, "speculation": a_draft("file:///m/d")},
            {"/m/t": True, "/m/d": True},
        ),
        (
            {"target": {"model": "file:///m/t"}, "speculation": a_draft("file:///m/t")},
            {"/m/t": True},
        ),
        ({"target": {"model": "pvc://c/t"}}, {"/mnt/claims/c": True}),
        (
            {"target": {"model": "pvc://c/t"}, "speculation": a_draft("pvc://d/x")},
            {"/mnt/claims/c": True, "/mnt/claims/d": True},
        ),
        (
            {"target": {"model": "hf://o/n"}, "modelCache": {"persistentVolumeClaim": "c"}},
            {"/mnt/cache": False},
        ),
    ],
    ids=["node", "node-draft", "node-same", "claim", "claims", "cache"],
)
def test_models_are_mounted(changes: dict[str, Any], expected: dict[str, bool]) -> None:
    assert mounts_of(**changes) == expected


def test_a_claim_used_twice_is_one_volume() -> None:
    changes = {"target": {"model": "pvc://c/t"}, "modelCache": {"persistentVolumeClaim": "c"}}
    assert mounts_of(**changes) == {"/mnt/cache": False, "/mnt/claims/c": True}
    volumes = template_of(**changes)["spec"]["volumes"]
    assert len([volume for volume in volumes if "persistentVolumeClaim" in volume]) == 1


def test_the_image_of_the_spec_wins_over_the_operators_default() -> None:
    assert container_of()["image"] == "default:1"
    assert container_of(engine={"image": "mine:2"})["image"] == "mine:2"


def test_an_absent_lookup_window_reaches_the_worker_as_its_default() -> None:
    ngram = config_of().speculation.ngram
    assert ngram is not None
    assert (ngram.prompt_lookup_min, ngram.prompt_lookup_max) == (2, 4)


def test_the_served_name_defaults_to_the_resource() -> None:
    assert config_of().served_model_name == "chat"
    assert config_of(target={"model": "hf://o/n", "servedModelName": "x"}).served_model_name == "x"


def test_the_cache_directory_is_told_only_where_there_is_one() -> None:
    assert config_of().cache_directory is None
    assert config_of(modelCache={"persistentVolumeClaim": "c"}).cache_directory == "/mnt/cache"


def test_a_simulated_engine_is_passed_through() -> None:
    simulation = config_of(engine={"simulation": {"acceptancePercent": 20}}).simulation
    assert simulation is not None
    assert simulation.acceptance_percent == 20
    assert config_of().simulation is None


def test_every_field_of_the_worker_config_can_be_steered_by_the_spec() -> None:
    full = config_of(
        target={
            "model": "hf://o/n",
            "servedModelName": "s",
            "tensorParallelSize": 2,
            "pipelineParallelSize": 2,
            "dtype": "half",
            "quantization": "fp8",
            "kvCacheDtype": "fp8",
            "maxModelLen": 2048,
            "trustRemoteCode": True,
            "dataParallelSize": 2,
            "nodesPerReplica": 2,
            "lora": {"adapters": [{"name": "a", "model": "hf://o/a"}]},
        },
        engine={
            "version": "0.31.0",
            "allowUnknownVersion": True,
            "heartbeatSeconds": 60,
            "preflight": "Warn",
            "maxNumSeqs": 3,
            "gpuMemoryUtilizationPercent": 50,
            "extraArgs": ["--x"],
            "startupDeadlineSeconds": 7,
            "drainSeconds": 9,
            "warmup": {"requests": 1},
            "simulation": {},
            "tls": {"secretName": "s", "serverName": "n"},
        },
        modelCache={"persistentVolumeClaim": "c"},
        pod={"numaBind": True},
    )
    default = config_of(speculation={"method": "None"})
    same = {
        name for name in WorkerConfig.model_fields if getattr(full, name) == getattr(default, name)
    }
    # The API version knows one schema so far.
    assert same == {"schema_version"}


def test_kubelet_leaves_dollar_signs_of_the_config_alone() -> None:
    (text,) = [
        variable["value"]
        for variable in container_of(engine={"extraArgs": ["--chat-template=$(HOME)/$x"]})["env"]
        if variable["name"] == CONFIG_VARIABLE
    ]
    assert "$$(HOME)/$$x" in text


@pytest.mark.parametrize(
    ("gpus", "pod", "size"),
    [
        (2, {"resources": {"limits": {"memory": "64Gi"}}}, "8192Mi"),
        (2, {"resources": {"limits": {"memory": "8Gi"}}}, "4096Mi"),
        (2, {"resources": {"limits": {"memory": "16G"}}}, "7629Mi"),
        (8, {"resources": {"limits": {"memory": 8589934592}}}, "4096Mi"),
        (2, {"resources": {"limits": {"memory": "64Gi"}}, "shmSize": "1Gi"}, "1Gi"),
        (2, {}, None),
        (1, {"resources": {"limits": {"memory": "64Gi"}}}, None),
    ],
)
def test_shared_memory_follows_the_gpus_and_stays_below_the_limit(
    gpus: int, pod: dict[str, Any], size: str | None
) -> None:
    target = {"model": "hf://o/n", "tensorParallelSize": gpus}
    spec = template_of(target=target, pod=pod)["spec"]
    (shared,) = [v["emptyDir"] for v in spec["volumes"] if v["name"] == "shared-memory"]
    assert (shared["medium"], shared.get("sizeLimit")) == ("Memory", size)


def test_rdma_and_huge_pages_are_asked_for_and_mounted() -> None:
    pod = {"rdma": {"count": 2}, "hugePages": {"pageSize": "2Mi", "amount": "512Mi"}}
    container = container_of(pod=pod)
    asked = {"nvidia.com/gpu": "1", "rdma/hca": "2", "hugepages-2Mi": "512Mi"}
    assert container["resources"] == {"requests": asked, "limits": asked}
    assert container["securityContext"]["capabilities"] == {"drop": ["ALL"], "add": ["IPC_LOCK"]}
    assert "/dev/hugepages" in [mount["mountPath"] for mount in container["volumeMounts"]]


def test_a_pod_without_rdma_has_no_capability() -> None:
    assert container_of()["securityContext"]["capabilities"] == {"drop": ["ALL"]}


@pytest.mark.parametrize(
    ("rollout", "replicas", "update"),
    [
        ({}, 3, {"maxSurge": 1, "maxUnavailable": 0}),
        ({"capacity": "InPlace"}, 3, {"maxSurge": 0, "maxUnavailable": 1}),
        ({"capacity": "InPlace"}, 1, {"maxSurge": 1, "maxUnavailable": 0}),
        (
            {"capacity": "InPlace", "allowDowntime": True},
            1,
            {"maxSurge": 0, "maxUnavailable": 1},
        ),
    ],
    ids=["surge", "in place", "the only pod stays", "the only pod may go"],
)
def test_a_restart_takes_no_pod_more_than_the_rollout_may(
    rollout: dict[str, Any], replicas: int, update: dict[str, int]
) -> None:
    template = template_of()
    deployment = worker_deployment(
        Scale("abc", "stable", replicas),
        template,
        name="chat",
        metadata={},
        rollout=Rollout.model_validate(rollout),
    )
    assert deployment["spec"]["strategy"]["rollingUpdate"] == update


def test_an_engine_with_tls_gets_its_secret_and_nobody_else_reads_it() -> None:
    tls = {"secretName": "chat-engines", "serverName": "chat.llm.svc"}
    template = template_of(engine={"tls": tls})
    (volume,) = [each for each in template["spec"]["volumes"] if each["name"] == "tls"]
    assert volume["secret"] == {"secretName": "chat-engines", "defaultMode": 0o400}
    (mount,) = [m for m in container_of(engine={"tls": tls})["volumeMounts"] if m["name"] == "tls"]
    assert mount["readOnly"]
    told = config_of(engine={"tls": tls}).tls
    assert told is not None
    assert (told.directory, told.server_name) == (mount["mountPath"], "chat.llm.svc")
    assert config_of().tls is None
