"""The gateway in a cluster: many streams through every kind of change, keys, native lane."""

import json
import time
import urllib.error
import urllib.request
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from e2e.dsl import BUILD, Trial, a_trial, load_on, wait_for
from e2e.kubectl import get, kubectl, listed
from e2e.worker_log import following

pytestmark = pytest.mark.cluster

KEY, OTHER_KEY = "sk-test-one-4f1c", "sk-test-two-9a7e"
GUARDED = {"auth": {"apiKeysSecret": "chat-keys"}}
ISSUER, AUDIENCE = "https://issuer.example", "chat"
INSIDE, OUTSIDE = "10.9.0.7", "192.0.2.7"
SignedBy = dict[str, ec.EllipticCurvePrivateKey]


def keys_secret(trial: Trial, **keys: str) -> None:
    """Creates or replaces the Secret with the API keys."""
    secret = {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": "chat-keys"},
        "stringData": keys,
    }
    kubectl("apply", "-n", trial.namespace, "-f", "-", stdin=json.dumps(secret))


def key_set(trial: Trial, keys: SignedBy) -> None:
    """Creates or replaces the ConfigMap with the issuer's public keys."""
    shown = [
        {
            **jwt.algorithms.ECAlgorithm.to_jwk(key.public_key(), as_dict=True),
            "kid": name,
            "alg": "ES256",
        }
        for name, key in keys.items()
    ]
    config_map = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "issuer"},
        "data": {"jwks.json": json.dumps({"keys": shown})},
    }
    kubectl("apply", "-n", trial.namespace, "-f", "-", stdin=json.dumps(config_map))


def a_token(keys: SignedBy, key: str, **claims: Any) -> str:
    said = {"iss": ISSUER, "aud": AUDIENCE, "sub": "alice", "exp": time.time() + 600, **claims}
    return jwt.encode(said, keys[key], algorithm="ES256", headers={"kid": key})


def key_file(trial: Trial) -> Path:
    BUILD.mkdir(parents=True, exist_ok=True)
    path = BUILD / f"{trial.namespace}-key"
    path.write_text(KEY, encoding="utf-8")
    return path


def ask(
    trial: Trial, key: str | None = None, *, seconds: float = 30, url: str = "", **headers: str
) -> tuple[int, Any, Any]:
    """One short completion, waited for so long, of its own gateway or at `url`: status, headers,
    body.
    """
    body = {"model": trial.name, "messages": [{"role": "user", "content": "hi"}], "max_tokens": 4}
    request = urllib.request.Request(
        f"{url or trial.url()}/v1/chat/completions",
        data=json.dumps(body).encode(),
        headers={"content-type": "application/json", **headers}
        | ({"authorization": f"Bearer {key}"} if key else {}),
    )
    try:
        with urllib.request.urlopen(request, timeout=seconds) as answer:
            return answer.status, answer.headers, json.load(answer)
    except urllib.error.HTTPError as error:
        return error.code, error.headers, json.loads(error.read())


def ready(trial: Trial, component: str) -> list[dict[str, Any]]:
    """Ready pods that nobody has asked to leave."""
    return [
        pod
        for pod in trial.pods(component).values()
        if "deletionTimestamp" not in pod["metadata"]
        and any(
            c["type"] == "Ready" and c["status"] == "True"
            for c in pod["status"].get("conditions", [])
        )
    ]


def evict(trial: Trial, pod: dict[str, Any]) -> None:
    """What `kubectl drain` does to each pod."""
    name = pod["metadata"]["name"]
    eviction = {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"name": name, "namespace": trial.namespace},
    }
    path = f"/api/v1/namespaces/{trial.namespace}/pods/{name}/eviction"
    kubectl("create", "--raw", path, "-f", "-", stdin=json.dumps(eviction))


def test_fifty_streams_through_rollouts_scaling_rolling_gateways_and_evictions() -> None:
    with a_trial("fifty") as trial:
        keys_secret(trial, first=KEY)
        common: dict[str, Any] = {
            "tokens_per_second": 15,
            "gateway": GUARDED
            | {"replicas": 2, "rateLimit": {"requestsPerMinutePerKey": 1_000_000}},
        }
        trial.apply(k=4, replicas=3, **common)
        stable = trial.wait_available()
        with (
            following(trial) as generations,
            load_on(
                trial.url(), trial.namespace, streams=50, api_key_file=key_file(trial)
            ) as report,
        ):
            # a bad draft goes, a good one stays
            trial.apply(k=4, acceptance_percent=2, replicas=3, **common)
            trial.wait_progressing("RolledBack")
            wait_for("only stable runs", lambda: trial.revisions_running() == {stable})
            trial.apply(k=6, acceptance_percent=85, replicas=3, **common)
            trial.wait_progressing("Guarding", 240)
            trial.wait_progressing("Complete")
            wait_for("the old revision is gone", lambda: stable not in trial.revisions_running())
            # fewer pods
            kubectl("scale", "specdep", "chat", "-n", trial.namespace, "--replicas=2")
            wait_for("two pods", lambda: len(trial.pods()) == 2, 120)
            # other gateway pods, one after the other
            before = set(trial.pods("gateway"))
            kubectl("rollout", "restart", "deployment/chat-gateway", "-n", trial.namespace)
            wait_for("new gateways", lambda: not before & set(trial.pods("gateway")), 180)
            # every worker evicted, each when its successor is ready
            for pod in list(trial.pods().values()):
                wait_for("two ready pods", lambda: len(ready(trial, "worker")) == 2)
                evict(trial, pod)
            wait_for("two ready pods", lambda: len(ready(trial, "worker")) == 2)
            wait_for("nobody is leaving", lambda: len(trial.pods()) == 2, 120)
        found = report()
        assert (found["failed"], found["cut"]) == (0, 0), found
        assert found["ok"] > 300
        answered = Counter(generations())
    # counted at the workers: every request was generated once, also those behind a retry
    assert [each for each, times in answered.items() if times > 1] == []
    assert len(answered) == found["ok"]


def test_keys_are_asked_for_rotated_and_counted() -> None:
    with a_trial("keys") as trial:
        keys_secret(trial, first=KEY)
        limit = {"rateLimit": {"requestsPerMinutePerKey": 5}}
        trial.apply(k=4, gateway=GUARDED | limit)
        trial.wait_available()
        assert ask(trial)[0] == 401
        assert ask(trial, "sk-wrong")[0] == 401
        assert ask(trial, KEY)[0] == 200
        # both are valid while clients move from one to the other
        keys_secret(trial, first=KEY, second=OTHER_KEY)
        wait_for("the new key is known", lambda: ask(trial, OTHER_KEY)[0] == 200, 120)
        kubectl(
            *("patch", "secret", "chat-keys", "-n", trial.namespace, "--type=json"),
            *("-p", '[{"op": "remove", "path": "/data/first"}]'),
        )
        wait_for("the old key is refused", lambda: ask(trial, KEY)[0] == 401, 120)
        refused = wait_for("a limit", lambda: [a for a in [ask(trial, OTHER_KEY)] if a[0] == 429])
        _, headers, body = refused[0]
        assert int(headers["retry-after"]) > 0
        assert body["error"]["code"] == "rate_limit_exceeded"
        # the keys stand in no object that others may read
        dump = kubectl("get", "configmaps,pods,specdep", "-n", trial.namespace, "-o", "json")
        assert KEY not in dump
        assert OTHER_KEY not in dump


def test_tokens_and_addresses_are_asked_for_and_the_issuer_s_keys_change() -> None:
    """The client is who stands last in x-forwarded-for, as with one proxy in front: so the test
    has any address, whatever the Service does to its own.
    """
    keys = {name: ec.generate_private_key(ec.SECP256R1()) for name in ("one", "two")}
    only_one = {"one": keys["one"]}
    issued_by = {"issuer": ISSUER, "audiences": [AUDIENCE], "jwksConfigMap": "issuer"}
    with a_trial("tokens") as trial:
        key_set(trial, only_one)
        trial.apply(
            k=4,
            gateway={
                "auth": {"jwt": issued_by},
                "allowedCidrs": ["10.9.0.0/16"],
                "trustedProxyHops": 1,
                "rateLimit": {"requestsPerMinutePerKey": 1000},
            },
        )
        trial.wait_available()
        gateways = set(trial.pods("gateway"))

        def status(token: str | None, address: str = INSIDE) -> int:
            return ask(trial, token, **{"x-forwarded-for": address})[0]

        good = a_token(keys, "one")
        # who may not come in need not say who they are
        assert status(good, OUTSIDE) == 403
        assert status(good, f"{INSIDE}, {OUTSIDE}") == 403, "a client wrote the first one itself"
        assert status(good, f"{OUTSIDE}, {INSIDE}") == 200
        assert status(None) == 401
        assert status(a_token(keys, "one", exp=time.time() - 600)) == 401
        assert status(a_token(keys, "one", aud="other")) == 403
        assert status(a_token(keys, "two")) == 401
        assert status(good) == 200
        # the issuer's new keys reach running pods; a withdrawn one is no longer believed
        key_set(trial, keys)
        wait_for("the new key is known", lambda: status(a_token(keys, "two")) == 200, 180)
        assert status(good) == 200
        key_set(trial, {"two": keys["two"]})
        wait_for("the old key is refused", lambda: status(good) == 401, 180)
        assert status(a_token(keys, "two")) == 200
        assert set(trial.pods("gateway")) == gateways
        # without any nobody would get in: the pod leaves the Service, and the resource says why
        key_set(trial, {})
        wait_for(
            "GatewayReady is False",
            lambda: trial.condition("GatewayReady")["status"] == "False",
            180,
        )


def test_native_answers_when_every_accelerated_pod_is_gone() -> None:
    with a_trial("native") as trial:
        trial.apply(k=4, lanes={"native": {"replicas": 1, "fallback": True}})
        stable = trial.wait_available()
        wait_for("both lanes", lambda: len(ready(trial, "worker")) == 2)
        assert ask(trial, **{"x-speculative-lane": "native"})[1]["x-speculative-revision"] != stable
        with load_on(trial.url(), trial.namespace) as report:
            (pod,) = (
                p
                for p in ready(trial, "worker")
                if p["metadata"]["labels"]["speculative.dev/revision"] == stable
            )
            kubectl(
                *("delete", "pod", pod["metadata"]["name"], "-n", trial.namespace),
                *("--grace-period=0", "--force"),
            )
            wait_for("its successor", lambda: len(ready(trial, "worker")) == 2)
            wait_for(
                "accelerated again",
                lambda: ask(trial)[1]["x-speculative-revision"] == stable,
            )
        found = report()
        # the killed pod took its own streams along; everybody else was answered
        assert found["failed"] + found["cut"] <= 3, found
        assert set(found["byRevision"]) - {""} > {stable}, found


def test_one_gateway_serves_two_resources_until_the_last_is_gone() -> None:
    with a_trial("shared") as trial:
        at_edge = {"gateway": {"mode": "Shared", "shared": {"name": "edge"}}}
        trial.gateway = "edge"
        code = replace(trial, name="code")
        both = (trial, code)
        for each in both:
            each.apply(k=4, **at_edge)
        stable = {each.name: each.wait_available() for each in both}
        url = trial.url()

        def answered(member: Trial) -> str:
            status, headers, _ = ask(member, url=f"{url}/{member.name}")
            return str(headers["x-speculative-revision"]) if status == 200 else str(status)

        wait_for("an answer of both", lambda: {m.name: answered(m) for m in both} == stable)
        with urllib.request.urlopen(f"{url}/v1/models", timeout=30) as answer:
            assert [each["id"] for each in json.load(answer)["data"]] == ["chat", "code"]
        status, _, body = ask(trial, url=url, **{"x-model": "nobody"})
        assert (status, body["error"]["code"]) == (404, "model_not_found")
        with load_on(f"{url}/chat", trial.namespace, streams=10) as report:
            # the other one's bad canary is judged, rolled back, and then all of it is deleted
            code.apply(k=4, acceptance_percent=2, **at_edge)
            with load_on(f"{url}/code", f"{trial.namespace}-code", streams=5) as of_code:
                code.wait_progressing("RolledBack")
            kubectl("delete", "specdep", "code", "-n", trial.namespace)
            wait_for("code is gone from the gateway", lambda: answered(code) == "404")
        found = report()
        assert (found["failed"], found["cut"]) == (0, 0), found
        assert set(found["byRevision"]) - {""} == {stable["chat"]}, found
        assert (of_code()["failed"], of_code()["cut"]) == (0, 0), of_code()
        owners = get("deployment", "edge-gateway", trial.namespace)["metadata"]["ownerReferences"]
        assert [each["name"] for each in owners] == ["chat"]
        kubectl("delete", "specdep", "chat", "-n", trial.namespace)
        ours = "speculative.dev/gateway=edge"
        wait_for(
            "the gateway's objects are gone",
            lambda: (
                not any(
                    listed(kind, trial.namespace, ours)
                    for kind in ("deployments", "services", "configmaps", "serviceaccounts")
                )
            ),
            120,
        )
