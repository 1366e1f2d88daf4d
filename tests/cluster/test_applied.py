"""Who applies `spec.replicas`, as an object's own metadata say."""

import json
from typing import Any

import pytest
from tests.builders import NAME, NAMESPACE, UID

from speculative_operator.cluster.applied import LAST_APPLIED, NOTE, replicas_applied_by, warning
from speculative_operator.cluster.reflector import Store
from speculative_operator.cluster.resources import SPECULATIVE_DEPLOYMENT


def managed(operation: str, *fields: str, manager: str = "argocd") -> dict[str, Any]:
    owned = {f"f:{field}": {} for field in fields}
    entry = {"manager": manager, "operation": operation, "fieldsV1": {"f:spec": owned}}
    return {"managedFields": [{"manager": "x", "operation": "Update"}, entry]}


def last_applied(text: str) -> dict[str, Any]:
    return {"annotations": {LAST_APPLIED: text}}


BOTH = json.dumps({"spec": {"replicas": 3, "autoscaling": {}}})


@pytest.mark.parametrize(
    ("metadata", "who"),
    [
        ({}, ""),
        (managed("Apply", "replicas", "target"), "argocd"),
        (managed("Apply", "target"), ""),
        (managed("Update", "replicas"), ""),
        (managed("Apply", "replicas", manager=""), "a client"),
        (last_applied(BOTH), "kubectl apply"),
        (last_applied(json.dumps({"spec": {"autoscaling": {}, "gateway": {"replicas": 2}}})), ""),
        (last_applied(json.dumps({"spec": {"replicas": 3}})), ""),
        (last_applied('"replicas" "autoscaling" {'), ""),
        (last_applied('["replicas", "autoscaling"]'), ""),
        ({NOTE: "argocd"}, "argocd"),
    ],
    ids=[
        "nothing",
        "applied",
        "applied without",
        "scaled",
        "nameless",
        "kubectl",
        "kubectl without",
        "kubectl without autoscaling",
        "garbled",
        "a list",
        "noted before",
    ],
)
def test_who_applies_replicas(metadata: dict[str, Any], who: str) -> None:
    assert replicas_applied_by(metadata) == who


def test_the_store_keeps_the_name_and_nothing_of_what_it_is_from() -> None:
    store = Store(SPECULATIVE_DEPLOYMENT)
    place = {"name": NAME, "namespace": NAMESPACE, "uid": UID, "resourceVersion": "1"}
    thing = {"metadata": {**place, **managed("Apply", "replicas")}, "spec": {}}
    store.replace([thing], "1")
    metadata = store.of((NAMESPACE, NAME))[NAME]["metadata"]
    assert "managedFields" not in metadata
    assert "argocd" in warning(metadata, autoscaled=True)
    assert warning(metadata, autoscaled=False) == ""
