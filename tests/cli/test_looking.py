"""What `status` finds beside the resource, and what it says when it finds less."""

import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.builders import a_snapshot
from tests.cli.fake_api import FakeApi, serving
from tests.cli.objects import STABLE, a_resource, canary
from tests.cluster.evidence_of import a_failed_trial

from speculative_api.labels import COMPONENT, REVISION
from speculative_api.worker import Digest
from speculative_cli.__main__ import main
from speculative_cli.looking import AT_ONCE, SHOWN_PODS, acceptance_length, look, pod_view
from speculative_cli.resource import parse
from speculative_operator.cluster.evidence import config_map


def a_pod(name: str, *, revision: str = STABLE, ready: bool = True, **status: Any) -> Any:
    marks = {COMPONENT: "worker", REVISION: revision}
    conditions = [{"type": "Ready", "status": "True" if ready else "False"}]
    return {
        "metadata": {"name": name, "labels": marks},
        "status": {"phase": "Running", "conditions": conditions} | status,
    }


def a_digest(generated: int, accepted: int) -> str:
    return Digest(
        ready=True,
        engine_started_at=1,
        sampled_at=2,
        method="NGram",
        generated_tokens=generated,
        accepted_tokens=accepted,
    ).model_dump_json(by_alias=True)


@pytest.fixture
def api(tmp_path: Path) -> Iterator[FakeApi]:
    with serving(FakeApi(pods=[a_pod("chat-1"), a_pod("chat-2")])) as found:
        found.kubeconfig(tmp_path)
        found.put(a_resource())
        found.digests = {"chat-1": a_digest(300, 200), "chat-2": a_digest(100, 0)}
        yield found


@pytest.fixture
def run(api: FakeApi, tmp_path: Path) -> Any:
    def call(*argv: str) -> int:
        return main([*argv, "--kubeconfig", str(tmp_path / "kubeconfig")])

    return call


def test_the_pods_of_a_shared_gateway_are_shown_too(api: FakeApi, run: Any, capsys: Any) -> None:
    raw = a_resource()
    raw["spec"]["gateway"] = {"mode": "Shared", "shared": {"name": "edge"}}
    api.put(raw)
    pod = a_pod("edge-gateway-1")
    pod["metadata"]["labels"] = {"speculative.dev/component": "gateway"}
    api.gateway_pods = {"speculative.dev/gateway=edge": [pod]}
    assert run("status", "chat") == 0
    out = capsys.readouterr().out
    assert "gateway edge, shared  1 of 1 ready" in out
    assert "edge-gateway-1  ready" in out
    assert "chat-1  ready" in out


def test_each_pod_is_shown_with_what_it_accepts(api: FakeApi, run: Any, capsys: Any) -> None:
    assert run("status", "chat") == 0
    out = capsys.readouterr().out
    assert "chat-1  ready  3.00" in out
    assert "chat-2  ready  1.00" in out
    assert "(note)" not in out


@pytest.mark.parametrize(
    ("forbidden", "said", "gone"),
    [
        ("/pods", "pods are not shown: not allowed (403)", "chat-1"),
        ("/pods/chat-1%3A8001/proxy/digest", "1 of 2 pods gave no figures", "3.00"),
    ],
)
def test_what_one_may_not_see_is_noted_and_the_rest_shown(
    api: FakeApi, run: Any, capsys: Any, forbidden: str, said: str, gone: str
) -> None:
    api.forbidden = {forbidden}
    assert run("status", "chat") == 0
    out = capsys.readouterr().out
    assert said in out
    assert gone not in out
    assert f"stable  3 ({STABLE})" in out


def test_evidence_that_may_not_be_read_is_noted(api: FakeApi, run: Any, capsys: Any) -> None:
    api.put(a_resource(canary=canary()))
    api.forbidden = {"/configmaps"}
    assert run("status", "chat") == 0
    assert "evidence is not shown: not allowed (403)" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("candidate", "shown"), [("a01c000000", True), ("0123456789", False)], ids=["it", "another"]
)
def test_evidence_is_shown_while_its_trial_goes_on(
    api: FakeApi, run: Any, capsys: Any, candidate: str, shown: bool
) -> None:
    snapshot = a_snapshot()
    api.config_maps = [config_map(snapshot, a_failed_trial())]
    raw = a_resource(canary=canary(hash=candidate))
    raw["metadata"]["uid"] = snapshot.uid
    api.put(raw)
    assert run("status", "chat", "-o", "json") == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["evidence"] is not None) == shown
    assert run("status", "chat") == 0
    assert ("AcceptanceLength  worse ██████████" in capsys.readouterr().out) == shown


def test_json_and_yaml_say_the_same(api: FakeApi, run: Any, capsys: Any) -> None:
    assert run("status", "chat", "-o", "json") == 0
    as_json = json.loads(capsys.readouterr().out)
    assert run("status", "chat", "-o", "yaml") == 0
    as_yaml = yaml.safe_load(capsys.readouterr().out)
    assert as_yaml | {"at": ""} == as_json | {"at": ""}
    assert as_json["pods"][0] == {
        "name": "chat-1",
        "component": "worker",
        "revision": STABLE,
        "ready": True,
        "state": "ready",
        "acceptanceLength": 3.0,
    }


STATES = {
    "unschedulable": (
        {
            "conditions": [
                {
                    "type": "PodScheduled",
                    "status": "False",
                    "reason": "Unschedulable",
                    "message": "0/3 nodes",
                }
            ]
        },
        "Unschedulable: 0/3 nodes",
    ),
    "crash loop": (
        {
            "containerStatuses": [
                {"restartCount": 3, "state": {"waiting": {"reason": "CrashLoopBackOff"}}}
            ]
        },
        "CrashLoopBackOff, 3 restarts",
    ),
    "came back": ({"containerStatuses": [{"restartCount": 1}]}, "not ready, 1 restarts"),
    "loads": ({}, "not ready"),
    "evicted": ({"phase": "Failed", "conditions": None}, "Failed"),
    "garbled": ({"phase": None, "conditions": [{}], "containerStatuses": [{}]}, "None"),
}


@pytest.mark.parametrize(("status", "words"), STATES.values(), ids=STATES.keys())
def test_a_pod_that_is_not_ready_says_why(status: dict[str, Any], words: str) -> None:
    found = pod_view(a_pod("p", ready=False, **status))
    assert (found.ready, found.words) == (False, words)


def test_a_pod_on_its_way_out_is_not_ready() -> None:
    raw = a_pod("p")
    raw["metadata"]["deletionTimestamp"] = "2026-11-30T10:00:00Z"
    assert (pod_view(raw).ready, pod_view(raw).words) == (False, "terminating")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (a_digest(300, 200), 3.0),
        (a_digest(0, 0), None),
        (a_digest(5, 5), None),
        ("", None),
        ("[]", None),
        ("<html>", None),
        ('{"ready": true}', None),
    ],
)
def test_a_figure_comes_only_out_of_a_digest(text: str, expected: float | None) -> None:
    assert acceptance_length(text) == expected


class Crowd:
    """A reader of three hundred pods that counts who is asked, and how many at once."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.asked: list[str] = []
        self.now = self.most = 0
        self.full = threading.Event()

    def pods(self, _: str) -> list[dict[str, Any]]:
        return [a_pod(f"chat-{n:03}") for n in range(300)]

    def gateway_pods(self, _: str) -> list[dict[str, Any]]:
        raise AssertionError("its gateway is its own")

    def digest(self, pod: str) -> str:
        with self.lock:
            self.asked.append(pod)
            self.now += 1
            self.most = max(self.most, self.now)
            if self.now == min(AT_ONCE, SHOWN_PODS):
                self.full.set()
        self.full.wait(10)
        with self.lock:
            self.now -= 1
        return a_digest(300, 200)

    def config_map(self, _: str) -> dict[str, Any]:
        raise AssertionError("nobody is on trial")


@pytest.mark.parametrize(("every_pod", "asked"), [(False, SHOWN_PODS), (True, 300)])
def test_of_many_pods_a_few_are_asked_and_never_all_at_once(every_pod: bool, asked: int) -> None:
    crowd = Crowd()
    found = look(crowd, parse(a_resource()), every_pod=every_pod)
    assert len(found.pods) == 300
    assert len(crowd.asked) == len(set(crowd.asked)) == asked
    assert crowd.most <= AT_ONCE
    assert sum(pod.acceptance_length == 3.0 for pod in found.pods) == asked
