"""The set of objects: order, stored templates, history, what is never pruned, limits."""

import json
from typing import Any

import pytest
from tests.builders import UID, a_record, a_snapshot, a_spec, a_status, some_words
from tests.golden import cases

from speculative_api import labels
from speculative_operator.decision import Decision, Scale, Share
from speculative_operator.desired.objects import (
    MAX_REVISION_BYTES,
    OWNED_KINDS,
    RevisionTooLarge,
    controller_revision,
    desired_objects,
    untouched,
)
from speculative_operator.desired.revision import native_words
from speculative_operator.settings import Settings
from speculative_operator.snapshot import RevisionRecord, Snapshot, Words

STABLE, CANARY = some_words(4), some_words(6)


def stable_only(snapshot: Snapshot, words: Words = STABLE) -> Decision:
    return Decision(
        status=snapshot.status,
        transition=False,
        scales=(Scale(words.hash, "stable", 1),),
        shares=(Share(words.hash, 100),),
    )


def rendered(snapshot: Snapshot, settings: Settings | None = None) -> dict[str, dict[str, Any]]:
    bodies = desired_objects(snapshot, stable_only(snapshot), settings or Settings())
    return {f"{body['kind']}/{body['metadata']['name']}": body for body in bodies}


@pytest.mark.parametrize("case", cases.names())
def test_two_renders_are_equal(case: str) -> None:
    assert cases.rendered(case) == cases.rendered(case)


@pytest.mark.parametrize("case", cases.of_one_resource())
def test_every_object_is_owned_labelled_of_a_known_kind_and_named_once(case: str) -> None:
    bodies = desired_objects(*cases.world(case), cases.SETTINGS)
    for body in bodies:
        metadata = body["metadata"]
        (owner,) = metadata["ownerReferences"]
        assert (owner["uid"], owner["controller"]) == (UID, True)
        assert metadata["labels"][labels.MANAGED_BY] == labels.MANAGER
        assert metadata["labels"][labels.NAME] == "chat"
        assert (body["apiVersion"], body["kind"]) in OWNED_KINDS
        assert "status" not in body
    keys = [(body["kind"], body["metadata"]["name"]) for body in bodies]
    assert len(set(keys)) == len(keys)


def test_the_record_comes_before_the_pods_that_are_made_from_it() -> None:
    kinds = [key.split("/")[0] for key in rendered(a_snapshot(status=a_status(stable=STABLE)))]
    assert kinds[0] == "ControllerRevision"
    assert kinds.index("ServiceAccount") < kinds.index("Deployment")
    assert kinds.index("Service") < kinds.index("Deployment")


def test_the_track_is_on_the_deployment_and_never_on_pods() -> None:
    body = rendered(a_snapshot(status=a_status(stable=STABLE)))[f"Deployment/chat-{STABLE.hash}"]
    assert body["metadata"]["labels"][labels.TRACK] == "stable"
    assert labels.TRACK not in body["spec"]["template"]["metadata"]["labels"]
    assert labels.TRACK not in body["spec"]["selector"]["matchLabels"]


def test_a_stored_template_is_applied_as_it_is_whatever_the_operator_would_render() -> None:
    world = a_snapshot(status=a_status(stable=STABLE), revisions=[a_record(STABLE)])
    before = rendered(world, Settings(worker_image="old"))
    after = rendered(world, Settings(worker_image="new"))
    assert before == after
    template = after[f"Deployment/chat-{STABLE.hash}"]["spec"]["template"]
    assert template == world.revisions[STABLE.hash].template


def test_only_a_new_gateway_image_changes_the_gateway() -> None:
    world = a_snapshot(status=a_status(stable=STABLE))
    before = rendered(world, Settings(gateway_image="a"))["Deployment/chat-gateway"]
    same = rendered(world, Settings(gateway_image="a", workers=1, worker_image="x"))
    assert same["Deployment/chat-gateway"] == before
    assert rendered(world, Settings(gateway_image="b"))["Deployment/chat-gateway"] != before


def test_scaling_the_gateway_does_not_change_its_pods() -> None:
    def template(replicas: int) -> Any:
        spec = a_spec(gateway={"replicas": replicas})
        objects = rendered(a_snapshot(spec, status=a_status(stable=STABLE)))
        assert ("PodDisruptionBudget/chat-gateway" in objects) == (replicas > 1)
        return objects["Deployment/chat-gateway"]["spec"]["template"]

    assert template(1) == template(3)


def test_only_the_agent_sees_the_keys_and_only_where_there_are_some() -> None:
    def pod(**gateway: object) -> Any:
        world = a_snapshot(a_spec(gateway=gateway), status=a_status(stable=STABLE))
        return rendered(world)["Deployment/chat-gateway"]["spec"]["template"]["spec"]

    plain, guarded = pod(), pod(auth={"apiKeysSecret": "chat-keys"})
    assert [volume["name"] for volume in plain["volumes"]] == ["shared"]
    (keys,) = (volume for volume in guarded["volumes"] if volume["name"] == "keys")
    assert keys["secret"] == {"secretName": "chat-keys", "defaultMode": 0o440, "optional": True}
    mounts = {each["name"]: each["volumeMounts"] for each in guarded["containers"]}
    assert [mount["name"] for mount in mounts["envoy"]] == ["shared"]
    (mount,) = (mount for mount in mounts["agent"] if mount["name"] == "keys")
    assert mount["readOnly"]


def test_the_gateway_drains_for_the_longer_of_stable_and_spec_and_does_not_roll_for_it() -> None:
    stable = some_words(engine={"drainSeconds": 600})
    world = a_snapshot(status=a_status(stable=stable), revisions=[a_record(stable)])
    objects = [desired_objects(world, stable_only(world, stable), Settings())]
    shorter = some_words(engine={"drainSeconds": 60})
    world = a_snapshot(status=a_status(stable=shorter), revisions=[a_record(shorter)])
    objects.append(desired_objects(world, stable_only(world, shorter), Settings()))
    found = [{(b["kind"], b["metadata"]["name"]): b for b in bodies} for bodies in objects]
    drains = [json.loads(b["ConfigMap", "chat-route"]["data"]["route.json"]) for b in found]
    # The spec's own drain, which no pod has yet, is the default 120.
    assert [route["drainSeconds"] for route in drains] == [600, 120]
    first, second = (b["Deployment", "chat-gateway"]["spec"]["template"] for b in found)
    assert first == second
    assert first["spec"]["terminationGracePeriodSeconds"] >= 7200


def test_a_revision_whose_record_is_lost_is_not_rendered_but_not_pruned_either() -> None:
    world = a_snapshot(status=a_status(stable="ffffffffff"))
    decision = Decision(
        status=world.status,
        transition=False,
        scales=(Scale("ffffffffff", "stable", 1),),
        shares=(Share("ffffffffff", 100),),
    )
    names = {body["metadata"]["name"] for body in desired_objects(world, decision, Settings())}
    assert "chat-ffffffffff" not in names
    assert "ffffffffff" in untouched(world, decision)


def test_history_keeps_the_newest_and_the_failed() -> None:
    old = [some_words(k) for k in (10, 11, 12, 13)]
    native = native_words(some_words(target={"model": "file:///models/gone"}))
    failed = {"hash": old[0].hash, "reason": "AcceptanceWorse", "at": "2026-01-01T00:00:00Z"}
    world = a_snapshot(
        a_spec(rollout={"revisionHistoryLimit": 2}),
        status=a_status(stable=STABLE, failedRevisions=[failed]),
        revisions=[a_record(words, number=i) for i, words in enumerate(old)]
        + [a_record(STABLE, number=9), a_record(native, number=8)],
    )
    kept = {key.split("-")[-1] for key in rendered(world) if key.startswith("ControllerRevision")}
    assert kept == {STABLE.hash, old[0].hash, old[2].hash, old[3].hash}


def test_a_new_revision_keeps_why_the_spec_was_changed() -> None:
    why = {labels.CHANGE_CAUSE: "k 4 to 6, ticket 12" + "." * 2000}
    world = a_snapshot(status=a_status(stable=STABLE), annotations=why)
    body = rendered(world)[f"ControllerRevision/chat-{STABLE.hash}"]
    assert body["metadata"]["annotations"] == {labels.CHANGE_CAUSE: why[labels.CHANGE_CAUSE][:1024]}


def test_a_change_cause_is_about_the_present_spec_only() -> None:
    world = a_snapshot(
        a_spec(k=6),
        status=a_status(stable=STABLE),
        annotations={labels.CHANGE_CAUSE: "k 4 to 6"},
        revisions=[a_record(STABLE)],
    )
    assert (
        "annotations" not in rendered(world)[f"ControllerRevision/chat-{STABLE.hash}"]["metadata"]
    )


def test_a_revision_above_the_limit_is_refused() -> None:
    record = RevisionRecord("0123456789", 1, {"target": "x" * MAX_REVISION_BYTES}, {})
    with pytest.raises(RevisionTooLarge, match="at most"):
        controller_revision(record, name="chat", metadata={})


@pytest.mark.parametrize(
    ("wanted", "container", "variable"),
    [
        ({"trustedProxyHops": 2}, "envoy", {"name": "TRUSTED_PROXY_HOPS", "value": "2"}),
        (
            {
                "auth": {"apiKeysSecret": "keys"},
                "rateLimit": {"concurrentRequestsPerKey": 4},
            },
            "envoy",
            {"name": "CONCURRENCY", "value": "1"},
        ),
        (
            {"tls": {"secretName": "cert", "minVersion": "1.3"}},
            "envoy",
            {"name": "TLS_MINIMUM", "value": "1.3"},
        ),
        (
            {"tls": {"secretName": "cert"}},
            "agent",
            {"name": "TLS_DIRECTORY", "value": "/etc/gateway/tls"},
        ),
        (
            {"auth": {"jwt": {"issuer": "i", "audiences": ["a"], "jwksConfigMap": "keys"}}},
            "agent",
            {"name": "KEY_SET_DIRECTORY", "value": "/etc/gateway/key-set"},
        ),
    ],
    ids=["hops", "one thread to count by", "tls", "tls for the agent", "public keys"],
)
def test_what_the_listener_needs_is_in_the_pod_where_it_is_asked_for(
    wanted: dict[str, object], container: str, variable: dict[str, str]
) -> None:
    def variables(**gateway: object) -> list[dict[str, object]]:
        body = rendered(a_snapshot(a_spec(gateway=gateway)))["Deployment/chat-gateway"]
        containers = body["spec"]["template"]["spec"]["containers"]
        found: list[dict[str, object]] = next(c for c in containers if c["name"] == container)[
            "env"
        ]
        return found

    assert variable in variables(**wanted)
    assert variable["name"] not in {each["name"] for each in variables()}


def test_only_envoy_holds_the_certificate_and_users_come_to_443() -> None:
    wanted = {"tls": {"secretName": "cert"}}
    found = rendered(a_snapshot(a_spec(gateway=wanted)))
    pod = found["Deployment/chat-gateway"]["spec"]["template"]["spec"]
    mounts = {c["name"]: {m["name"] for m in c["volumeMounts"]} for c in pod["containers"]}
    assert "tls" in mounts["envoy"] - mounts["agent"]
    (volume,) = (each for each in pod["volumes"] if each["name"] == "tls")
    assert volume["secret"] == {"secretName": "cert", "defaultMode": 0o440}
    (port,) = found["Service/chat-gateway"]["spec"]["ports"]
    assert (port["name"], port["port"], port["targetPort"]) == ("https", 443, 8080)
