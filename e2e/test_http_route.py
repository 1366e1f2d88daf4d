"""`gateway.mode: GatewayAPI` at a real Gateway (Contour and its Envoy), with simulated engines."""

import json
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from e2e.cluster.local import dead_parts
from e2e.cluster.settings import current_settings
from e2e.dsl import Trial, a_trial, load_on, wait_for
from e2e.gateway_controller import Edge, gateway_installed
from e2e.kubectl import kubectl, listed
from e2e.worker_log import following
from prometheus_client.parser import text_string_to_metric_families

pytestmark = pytest.mark.cluster

NATIVE = {"x-speculative-lane": "native"}
WEIGHT = 25


@pytest.fixture(scope="module")
def edge() -> Iterator[Edge]:
    if dead_parts(current_settings()):
        pytest.skip("on the local cluster only: the Gateway's Envoy asks pods from this machine")
    with gateway_installed() as made:
        yield made


def at(edge: Edge, *, hosts: tuple[str, ...] = (), **parent: str) -> dict[str, Any]:
    shown = {"hosts": list(hosts)} if hosts else {}
    return {"mode": "GatewayAPI", "parentRef": edge.parent(**parent), **shown}


def status_of(url: str, path: str = "/v1/chat/completions", **headers: str) -> int:
    """The status of one short completion, or of what else is asked for."""
    body = {"model": "chat", "messages": [{"role": "user", "content": "hi"}], "max_tokens": 4}
    data = json.dumps(body).encode() if path.endswith("completions") else None
    said = {"content-type": "application/json", **headers}
    try:
        with urllib.request.urlopen(urllib.request.Request(url + path, data, said)) as answer:
            answer.read()
            return int(answer.status)
    except urllib.error.HTTPError as error:
        return error.code


def answered(trial: Trial) -> Counter[str]:
    """Whole answers by revision, as the pods that are there counted them."""
    found: Counter[str] = Counter()
    for pod in trial.pods().values():
        address = pod["status"].get("podIP")
        try:
            with urllib.request.urlopen(f"http://{address}:8000/metrics", timeout=5) as answer:
                text = answer.read().decode()
        except OSError:
            continue
        found[pod["metadata"]["labels"]["speculative.dev/revision"]] += int(
            sum(
                sample.value
                for family in text_string_to_metric_families(text)
                for sample in family.samples
                if sample.name == "vllm:request_success_total"
            )
        )
    return found


def shares(trial: Trial, requests: int) -> Counter[str]:
    """Who answers the next requests, at least so many."""
    before = answered(trial)

    def more() -> Counter[str] | None:
        since = answered(trial)
        since.subtract(before)
        return since if since.total() >= requests else None

    found: Counter[str] = wait_for(f"{requests} answers", more)
    return found


def test_a_bad_draft_goes_and_a_good_one_stays_at_somebody_elses_gateway(edge: Edge) -> None:
    with a_trial("edge") as trial:
        trial.address = edge.url
        common: dict[str, Any] = {
            "gateway": at(edge),
            "lanes": {"native": {"replicas": 1}},
            "rollout": {
                "steps": [{"weight": WEIGHT}, {"pause": {"durationSeconds": 5}}],
                "analysis": {"periodSeconds": 2},
                "guard": {"durationSeconds": 5},
            },
        }
        trial.apply(k=4, **common)
        stable = trial.wait_available()
        wait_for("the native lane", lambda: len(trial.revisions_running()) == 2)
        (native,) = trial.revisions_running() - {stable}
        assert "can't be read back" in trial.condition("GatewayReady")["message"]
        wait_for("the Gateway's Envoy follows", lambda: status_of(edge.url, "/v1/models") == 200)
        with (
            following(trial) as generations,
            load_on(edge.url, trial.namespace, streams=4) as report,
        ):
            # when a bad draft is tried
            trial.apply(k=4, acceptance_percent=2, **common)
            bad = trial.wait_progressing("CanaryWeighted")["canary"]["hash"]
            # then its share of the users is what its weight says
            found = shares(trial, 200)
            assert WEIGHT / 2 < 100 * found[bad] / found.total() < WEIGHT * 1.5, found
            assert found[native] == 0
            status = trial.wait_progressing("RolledBack")
            assert status["failedRevisions"][0]["reason"] == "AcceptanceWorse"
            # and nobody reaches it any more, while its pods wait for who may not have heard
            wait_for("nobody reaches it", lambda: shares(trial, 50)[bad] == 0, 20)
            assert bad in trial.revisions_running()
            # when a good one is tried
            trial.apply(k=6, acceptance_percent=85, **common)
            good = trial.wait_progressing("CanaryWeighted")["canary"]["hash"]
            tried = trial.pods_of(good)
            trial.wait_progressing("Complete")
            # then the others go, and the pods that were tried serve everybody
            wait_for("the others go", lambda: not {stable, bad} & trial.revisions_running())
            assert tried <= set(trial.pods())
            # the native lane follows what else is in the revision
            wait_for("two lanes", lambda: len(trial.revisions_running()) == 2)
            (native,) = trial.revisions_running() - {good}
            found = shares(trial, 50)
            assert (found[good], found[native]) == (found.total(), 0)
        counted = report()
        assert (counted["failed"], counted["cut"]) == (0, 0), counted
        made = Counter(generations())
        assert [each for each, times in made.items() if times > 1] == []
        assert len(made) == counted["ok"] > 500
        # the native lane is asked by header
        before = answered(trial)
        assert {status_of(edge.url, **NATIVE) for _ in range(5)} == {200}
        since = answered(trial)
        assert (since[native] - before[native], since[good] - before[good]) == (5, 0)
        # and all of it goes with the resource
        kubectl("delete", "specdep", "chat", "-n", trial.namespace)
        wait_for("no route", lambda: not listed("httproutes", trial.namespace))
        wait_for("nobody is served", lambda: status_of(edge.url, "/v1/models") == 404)


def test_what_is_wrong_at_the_gateway_is_said_in_its_own_words(edge: Edge) -> None:
    with a_trial("edges") as trial:
        trial.address = edge.url
        code = replace(trial, name="code")

        def says(of: Trial, words: str) -> None:
            def said() -> bool:
                found = of.condition("GatewayReady")
                refused = (found["status"], found["reason"]) == ("False", "RouteNotAccepted")
                return refused and words in found["message"]

            wait_for(f"{of.name}: {words}", said)

        trial.apply(k=4, gateway=at(edge, name="nowhere"))
        says(trial, f"No controller has answered for Gateway {edge.namespace}/nowhere")
        trial.apply(k=4, gateway=at(edge, sectionName="nope"))
        says(trial, f"Gateway {edge.namespace}/edge: NoMatchingParent: No listeners match")
        trial.apply(k=4, gateway=at(edge, sectionName="inner"))
        says(trial, "NotAllowedByListeners: No listeners included by this parent ref allowed")
        assert status_of(edge.url, "/v1/models") == 404
        trial.apply(k=4, gateway=at(edge, sectionName="open"))
        stable = trial.wait_available()
        wait_for("the Gateway's Envoy follows", lambda: status_of(edge.url, "/v1/models") == 200)
        # without a native lane its requests are an error, and never another lane's
        before = answered(trial)[stable]
        assert status_of(edge.url, **NATIVE) == 500
        assert status_of(edge.url) == 200
        assert answered(trial)[stable] == before + 1
        # a second resource says the same, then something of its own
        code.apply(k=4, gateway=at(edge))
        says(code, "RuleMatchConflict: HTTPRoute's Match has conflict")
        code.apply(k=4, gateway=at(edge, hosts=("code.example",)))
        code.wait_available()
        assert trial.condition("GatewayReady")["status"] == "True"
        # what it can't resolve
        picked = {"endpointPickerRef": {"name": "picker-{revision}"}}
        pools = {"backend": "InferencePool", **picked}
        code.apply(k=4, gateway=at(edge, hosts=("code.example",)) | pools)
        says(code, 'InvalidKind: Spec.Rules.BackendRef.Group must be ""')
        # whose words stay in the route when it is at another one counts no more
        code.apply(k=4, gateway=at(edge, hosts=("code.example",), name="nowhere"))
        says(code, f"No controller has answered for Gateway {edge.namespace}/nowhere")
        assert trial.condition("GatewayReady")["status"] == "True"
        assert status_of(edge.url) == 200
