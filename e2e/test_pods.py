"""Where pods run and what they speak: encrypted engines, spot nodes, models fetched by a Job."""

import asyncio
import json
import shutil
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from e2e.dsl import SIMULATED_WORKER, Trial, a_manifest, a_trial, wait_for
from e2e.kubectl import apply, kubectl, listed
from e2e.test_gateway import ask
from tests.certificates import Authority
from tests.worker.test_fetching import COMMIT, WEIGHTS, Hub

pytestmark = pytest.mark.cluster

SPOT = ("example.com/e2e-capacity", "spot")


def test_engines_speak_tls_and_a_certificate_for_another_name_is_refused() -> None:
    with a_trial("tls") as trial:
        secret = {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": "engines"},
            "stringData": Authority().secret("chat.engines"),
        }
        kubectl("apply", "-n", trial.namespace, "-f", "-", stdin=json.dumps(secret))

        def speaking_as(name: str) -> None:
            manifest = a_manifest(trial.name)
            manifest["spec"]["engine"]["tls"] = {"secretName": "engines", "serverName": name}
            apply(manifest, trial.namespace)

        speaking_as("chat.engines")
        stable = trial.wait_available()
        assert ask(trial)[0] == 200
        # when a revision asks for a name that the certificate is not for
        speaking_as("chat.elsewhere")
        status = trial.wait_progressing("RolledBack")
        assert status["failedRevisions"][0]["reason"] == "InvalidArguments"
        assert "chat.elsewhere" in status["failedRevisions"][0]["message"]
        assert status["stable"]["hash"] == stable
        assert ask(trial)[0] == 200


def test_reserved_pods_stay_off_spot_nodes_and_spot_pods_go_there() -> None:
    with a_trial("spot") as trial:
        manifest = a_manifest(trial.name, replicas=3)
        manifest["spec"]["pod"]["spot"] = {
            "nodeLabel": {"key": SPOT[0], "value": SPOT[1]},
            "percent": 50,
        }
        apply(manifest, trial.namespace)
        stable = trial.wait_available()
        assert trial.status["stable"]["readyReplicas"] == 3
        assert replicas(trial) == {f"chat-{stable}": 2, f"chat-{stable}-spot": 1}
        # when the only node turns out to be one that may be taken away
        with the_node_labelled(*SPOT):
            reserved, spot = (
                next(iter(of_capacity(trial, name).values())) for name in ("reserved", "spot")
            )
            for pod in (reserved, spot):
                name = pod["metadata"]["name"]
                kubectl("delete", "pod", name, "-n", trial.namespace, "--wait=false")
            # then a spot pod comes back there, and a reserved one waits for another node
            wait_for("the spot pod is back", lambda: is_back(trial, "spot", spot))
            wait_for("the reserved pod has no place", lambda: unschedulable(trial, "reserved"))
        wait_for("it has one", lambda: trial.status["stable"]["readyReplicas"] == 3)


def replicas(trial: Trial) -> dict[str, int]:
    """Pods that each worker Deployment asks for."""
    found = listed("deployments", trial.namespace, "speculative.dev/component=worker")
    return {each["metadata"]["name"]: each["spec"]["replicas"] for each in found}


def of_capacity(trial: Trial, capacity: str) -> dict[str, dict[str, Any]]:
    """Worker pods on one kind of node, by UID."""
    label = "speculative.dev/capacity"
    pods = trial.pods().items()
    return {uid: pod for uid, pod in pods if pod["metadata"]["labels"][label] == capacity}


def is_back(trial: Trial, capacity: str, gone: dict[str, Any]) -> bool:
    """Whether a successor of this pod is ready."""
    return any(
        uid != gone["metadata"]["uid"]
        and any(c["type"] == "Ready" and c["status"] == "True" for c in pod["status"]["conditions"])
        for uid, pod in of_capacity(trial, capacity).items()
    )


def unschedulable(trial: Trial, capacity: str) -> bool:
    """Whether the scheduler has no node for one of these."""
    return any(
        condition.get("reason") == "Unschedulable"
        for pod in of_capacity(trial, capacity).values()
        for condition in pod["status"].get("conditions", ())
    )


@contextmanager
def the_node_labelled(key: str, value: str) -> Iterator[None]:
    """The cluster's node, with a label more for as long as the block runs."""
    name = kubectl("get", "nodes", "-o", "name").split()[0]
    kubectl("label", name, f"{key}={value}", "--overwrite")
    try:
        yield
    finally:
        kubectl("label", name, f"{key}-")


@contextmanager
def a_hub() -> Iterator[str]:
    """A hub on the node's own address, for pods; its URL."""
    path = "jsonpath={.items[0].status.addresses[?(@.type=='InternalIP')].address}"
    address = kubectl("get", "nodes", "-o", path)
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()

    async def started() -> tuple[web.AppRunner, int]:
        runner = web.AppRunner(Hub().application())
        await runner.setup()
        await web.TCPSite(runner, address, 0).start()
        return runner, runner.addresses[0][1]

    runner, port = asyncio.run_coroutine_threadsafe(started(), loop).result(10)
    try:
        yield f"http://{address}:{port}"
    finally:
        asyncio.run_coroutine_threadsafe(runner.cleanup(), loop).result(10)
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


@contextmanager
def a_claim(trial: Trial) -> Iterator[Path]:
    """Claim `models` on a folder of the node."""
    folder = Path(tempfile.mkdtemp(prefix="e2e-cache-", dir="/var/tmp"))
    common = {
        "accessModes": ["ReadWriteMany"],
        "storageClassName": "",
    }
    volume = {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": trial.namespace},
        "spec": {
            **common,
            "capacity": {"storage": "1Gi"},
            "hostPath": {"path": str(folder)},
            "persistentVolumeReclaimPolicy": "Retain",
        },
    }
    claim = {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": "models"},
        "spec": {
            **common,
            "volumeName": trial.namespace,
            "resources": {"requests": {"storage": "1Gi"}},
        },
    }
    kubectl("apply", "-f", "-", stdin=json.dumps(volume))
    kubectl("apply", "-n", trial.namespace, "-f", "-", stdin=json.dumps(claim))
    try:
        yield folder
    finally:
        kubectl("delete", "pv", trial.namespace, "--wait=false")
        shutil.rmtree(folder)


def test_models_are_fetched_by_a_job_before_a_pod_is_made() -> None:
    with a_trial("download") as trial, a_claim(trial) as folder, a_hub() as hub:
        manifest = a_manifest(
            trial.name,
            target={"model": "hf://org/model@main"},
            # No engine is in this image; here only what comes before it matters.
            engine={"image": SIMULATED_WORKER, "startupDeadlineSeconds": 60},
            modelCache={"persistentVolumeClaim": "models"},
            rollout={"download": "Job"},
        )
        manifest["spec"]["pod"]["env"] = [{"name": "HF_ENDPOINT", "value": hub}]
        apply(manifest, trial.namespace)
        wait_for("a Job", lambda: listed("jobs", trial.namespace))
        assert not replicas(trial)
        wait_for("it has fetched them", lambda: passed(trial))
        found = folder / "models--org--model" / "snapshots" / COMMIT / "model.safetensors"
        assert found.read_bytes() == WEIGHTS
        wait_for("pods are made", lambda: replicas(trial))


def passed(trial: Trial) -> bool:
    """Whether the Job's result stands in status."""
    return bool((trial.status.get("preflight") or {}).get("outcome") == "Passed")
