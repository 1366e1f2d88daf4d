"""The objects of a gateway that several resources have together. Pure.

All members own them and none is the controller: Kubernetes collects them with the last
member, whether the operator runs or not.
"""

from typing import Any

from speculative_api import gateway as api
from speculative_api.v1alpha1 import Gateway
from speculative_operator.desired import names
from speculative_operator.desired.gateway import Wanted, objects_of
from speculative_operator.settings import Settings


def shared_objects(
    shared: api.SharedGateway,
    wanted: Gateway,
    settings: Settings,
    *,
    accesses: tuple[Gateway, ...],
    name: str,
    namespace: str,
    vouching: tuple[str, ...],
) -> tuple[dict[str, Any], ...]:
    """Everything in creation order, the ConfigMap that agents read among them.

    Args:
        wanted: the settings in force.
        accesses: whom members let in, and how often, each with the settings in force.
        vouching: Secrets that vouch for engines of any member.
    """
    owners = [names.member_reference(each.name, each.owner_uid) for each in shared.members]
    metadata = {"namespace": namespace, "ownerReferences": owners}
    own_labels = names.shared_labels(name)
    own_name = names.gateway(name)
    config_map = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {**metadata, "name": own_name, "labels": own_labels},
        "data": {api.SHARED_KEY: shared.model_dump_json(by_alias=True)},
    }
    of_its_own = Wanted(
        name=own_name,
        metadata=metadata,
        labels=own_labels,
        settings=wanted,
        accesses=accesses,
        told=(("SHARED_GATEWAY", name), ("ROUTE_CONFIGMAP", own_name)),
        vouching=vouching,
    )
    return (config_map, *objects_of(of_its_own, settings))
