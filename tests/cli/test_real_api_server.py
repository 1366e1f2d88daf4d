"""The verbs against a real API server with the real resource type."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.cli.objects import CANARY, START, a_resource, canary
from tests.cluster.envtest import TOKEN, Server, running

from speculative_api.labels import GROUP, KIND, NAME, PLURAL, REVISION, VERSION
from speculative_api.revisions import canonical_words, words_hash
from speculative_api.v1alpha1 import SpeculativeDeploymentSpec
from speculative_cli.__main__ import main

pytestmark = pytest.mark.cluster

PATH = f"/apis/{GROUP}/{VERSION}/namespaces/llm/{PLURAL}"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("api-server")


@pytest.fixture(scope="module")
def server(folder: Path) -> Iterator[Server]:
    with running(folder) as found:
        namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "llm"}}
        found.raw("POST", "/api/v1/namespaces", json.dumps(namespace).encode())
        yield found


@pytest.fixture(scope="module")
def kubeconfig(server: Server, folder: Path) -> str:
    cluster = {"server": server.url, "certificate-authority": str(folder / "apiserver.crt")}
    path = folder / "kubeconfig"
    path.write_text(
        json.dumps(
            {
                "apiVersion": "v1",
                "kind": "Config",
                "current-context": "here",
                "contexts": [{"name": "here", "context": {"cluster": "c", "user": "u"}}],
                "clusters": [{"name": "c", "cluster": cluster}],
                "users": [{"name": "u", "user": {"token": TOKEN}}],
            }
        )
    )
    return str(path)


def put(server: Server, name: str, raw: dict[str, Any]) -> None:
    raw = raw | {"kind": KIND, "metadata": {"name": name, "namespace": "llm"}}
    created = json.loads(server.raw("POST", PATH, json.dumps(raw).encode()))
    created["status"] = raw["status"]
    server.raw("PUT", f"{PATH}/{name}/status", json.dumps(created).encode())


def annotations(server: Server, name: str) -> dict[str, str]:
    found = json.loads(server.raw("GET", f"{PATH}/{name}"))
    return dict(found["metadata"].get("annotations", {}))


def test_status_shows_what_the_server_stores(server: Server, kubeconfig: str, capsys: Any) -> None:
    put(server, "shown", a_resource(canary=canary()))
    assert main(["status", "shown", "-n", "llm", "--kubeconfig", kubeconfig]) == 0
    assert f"canary  4 ({CANARY})  50 %  2/2 ready" in capsys.readouterr().out


def test_a_request_adds_its_annotation_and_changes_no_spec(server: Server, kubeconfig: str) -> None:
    put(server, "steered", a_resource(canary=canary()))
    for verb in ("promote", "abort"):
        assert main([verb, "steered", "-n", "llm", "--kubeconfig", kubeconfig]) == 0
    assert annotations(server, "steered") == {
        "speculative.dev/promote": f"{CANARY}/1@{START}",
        "speculative.dev/abort": f"{CANARY}@{START}",
    }
    found = json.loads(server.raw("GET", f"{PATH}/steered"))
    assert found["metadata"]["generation"] == 1


def test_what_is_missing_is_told_apart(server: Server, kubeconfig: str, capsys: Any) -> None:
    assert main(["status", "nobody", "--kubeconfig", kubeconfig]) == 3
    assert "nobody not found in namespace default" in capsys.readouterr().err


def test_undo_gives_back_the_words_though_the_server_filled_in_defaults(
    server: Server, kubeconfig: str, capsys: Any
) -> None:
    put(server, "undone", a_resource())
    live = json.loads(server.raw("GET", f"{PATH}/undone"))
    owner = {"apiVersion": live["apiVersion"], "kind": KIND, "name": "undone"}
    said = canonical_words(SpeculativeDeploymentSpec.model_validate(live["spec"]))
    revision = {
        "metadata": {
            "name": f"undone-{words_hash(said)}",
            "labels": {NAME: "undone", REVISION: words_hash(said)},
            "ownerReferences": [owner | {"uid": live["metadata"]["uid"]}],
        },
        "revision": 1,
        "data": {"spec": said, "template": {}},
    }
    path = "/apis/apps/v1/namespaces/llm/controllerrevisions"
    server.raw("POST", path, json.dumps(revision).encode())
    changed = live["spec"] | {"speculation": {"method": "None"}, "pod": {"shmSize": "1Gi"}}
    del live["status"]
    server.raw("PUT", f"{PATH}/undone", json.dumps(live | {"spec": changed}).encode())

    argv = ["undone", "-n", "llm", "--kubeconfig", kubeconfig]
    assert main(["diff", argv[0], "1", "spec", *argv[1:]]) == 0
    assert "speculation.method: 'NGram' -> 'None'" in capsys.readouterr().out
    assert main(["undo", *argv, "--to", "1"]) == 0
    found = json.loads(server.raw("GET", f"{PATH}/undone"))["spec"]
    assert canonical_words(SpeculativeDeploymentSpec.model_validate(found)) == said
    assert main(["history", *argv]) == 0
    assert "asked for" in capsys.readouterr().out
