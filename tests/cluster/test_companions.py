"""Who is at which shared gateway, who wakes whom, and what is in force for a member."""

from typing import Any

import pytest
from tests.builders import NAME, NAMESPACE, UID, a_raw_spec, a_spec

from speculative_api import gateway as api
from speculative_api import labels
from speculative_operator.cluster.companions import (
    Companions,
    gateway_key,
    shared_view,
)
from speculative_operator.cluster.reflector import Store
from speculative_operator.cluster.resources import (
    CONFIG_MAP,
    SPECULATIVE_DEPLOYMENT,
    WATCHED,
    Key,
)

EDGE, OTHER = (NAMESPACE, "shared/edge"), (NAMESPACE, "shared/other")
CHAT, CODE = (NAMESPACE, NAME), (NAMESPACE, "code")
_versions = iter(range(1, 10_000))


def a_parent(name: str = NAME, *, at: str = "edge", **gateway: Any) -> dict[str, Any]:
    said = {"mode": "Shared", "shared": {"name": at}, **gateway} if at else gateway
    metadata = {
        "name": name,
        "namespace": NAMESPACE,
        "uid": UID,
        "resourceVersion": str(next(_versions)),
    }
    return {"metadata": metadata, "spec": a_raw_spec(gateway=said)}


@pytest.mark.parametrize(
    ("spec", "found"),
    [
        ({"gateway": {"mode": "Shared", "shared": {"name": "edge"}}}, EDGE),
        ({"gateway": {"mode": "Envoy"}}, None),
        ({}, None),
        # whatever an older or newer CRD lets through
        ({"gateway": {"mode": "Shared"}}, None),
        ({"gateway": {"mode": "Shared", "shared": {"name": 7}}}, None),
        ({"gateway": "Shared"}, None),
        (None, None),
    ],
)
def test_the_gateway_is_read_from_the_raw_object(spec: Any, found: Key | None) -> None:
    assert gateway_key(NAMESPACE, {"spec": spec}) == found


def test_members_wake_their_gateway_and_it_wakes_them() -> None:
    parents = Store(SPECULATIVE_DEPLOYMENT)
    companions = Companions(parents)

    def heard(*, by_a_person: bool = True, key: Key = CHAT) -> tuple[Key, ...]:
        return companions.woken_by(key, by_a_person=by_a_person)

    parents.put(a_parent(at=""))
    assert heard() == ()
    parents.put(a_parent())
    assert heard() == (EDGE,)
    parents.put(a_parent("code"))
    assert heard(key=CODE) == (EDGE,)
    # its pods and its status are nobody else's matter, its edits are
    assert heard(by_a_person=False) == ()
    assert heard() == (EDGE,)
    assert companions.woken_by(EDGE, by_a_person=False) == (CHAT, CODE)
    # going to another one concerns both
    parents.put(a_parent(at="other"))
    assert heard() == (EDGE, OTHER)
    assert companions.woken_by(EDGE, by_a_person=False) == (CODE,)
    parents.drop(parents.of(CHAT)[NAME])
    assert heard(by_a_person=False) == (OTHER,)
    assert heard() == ()
    assert companions.woken_by(OTHER, by_a_person=False) == ()


def stores_at(shared: api.SharedGateway | None) -> dict[str, Store]:
    stores = {resource.kind: Store(resource) for resource in WATCHED}
    stores[SPECULATIVE_DEPLOYMENT.kind].put(a_parent())
    if shared is not None:
        thing = {
            "metadata": {
                "name": "edge-gateway",
                "namespace": NAMESPACE,
                "uid": "map",
                "labels": {labels.SHARED_GATEWAY: "edge"},
            },
            "data": {"shared.json": shared.model_dump_json(by_alias=True)},
        }
        assert stores[CONFIG_MAP.kind].put(thing) == EDGE
    return stores


def test_a_members_spec_has_the_settings_in_force() -> None:
    member = api.Member(name=NAME, owner_uid=UID, hosts=("a.example.com",))
    code = api.Member(name="code", owner_uid="uid-code", hosts=("b.example.com",))
    shared = api.SharedGateway(members=(member, code), settings={"replicas": 3})
    spec = a_spec(
        gateway={
            "mode": "Shared",
            "shared": {"name": "edge"},
            "hosts": ["a.example.com", "b.example.com"],
            "trustedProxyHops": 1,
            "maxRequestBodyBytes": 4096,
            "timeouts": {"idleSeconds": 60},
        }
    )
    view, effective = shared_view(stores_at(shared), CHAT, spec, UID, ())
    assert view is not None
    assert (view.joined, view.others, view.lost_hosts) == (True, ("code",), ("b.example.com",))
    assert view.differing == (
        "gateway.replicas is not set here and 3 there",
        "gateway.trustedProxyHops is 1 here and not set there",
    )
    assert (effective.gateway.replicas, effective.gateway.trusted_proxy_hops) == (3, 0)
    # its own stays its own
    assert effective.gateway.max_request_body_bytes == 4096
    assert effective.gateway.timeouts.idle_seconds == 60
    assert effective.gateway.shared_name == "edge"


def test_before_anything_was_agreed_nobody_is_at_it() -> None:
    spec = a_spec(gateway={"mode": "Shared", "shared": {"name": "edge"}, "replicas": 2})
    view, effective = shared_view(stores_at(None), CHAT, spec, UID, ("Service/edge-gateway",))
    assert view is not None
    assert (view.joined, view.conflicts) == (False, ("Service/edge-gateway",))
    assert effective == spec
