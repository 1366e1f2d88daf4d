"""Names, labels and owner references of every child object, in one place.

The resource's name has at most 40 characters (a rule of the CRD), so the
longest name here, name plus hash, fits a Service's 63.
"""

from datetime import datetime
from typing import Any

from speculative_api import labels

Labels = dict[str, str]


def revision(name: str, hash_: str) -> str:
    """Deployment, headless Service and first ControllerRevision of one revision."""
    return f"{name}-{hash_}"


def part(name: str, hash_: str, capacity: str) -> str:
    """Deployment of one part of a revision that is divided; the others have the revision's name."""
    return f"{revision(name, hash_)}-spot" if capacity == "spot" else revision(name, hash_)


def groups(name: str, hash_: str) -> str:
    """LeaderWorkerSet of one revision, and the headless Service that its controller makes of it."""
    return f"{revision(name, hash_)}-g"


def controller_revision(name: str, hash_: str, render: int) -> str:
    """ControllerRevision of one rendering; the first has the revision's own name."""
    return f"{revision(name, hash_)}-r{render}" if render else revision(name, hash_)


def gateway(name: str) -> str:
    """Deployment, Service, ServiceAccount, RoleBinding and disruption budget of the gateway."""
    return f"{name}-gateway"


def route(name: str) -> str:
    """ConfigMap that tells the gateways where to send requests."""
    return f"{name}-route"


def member_route(name: str) -> str:
    """The same for a gateway that has other members too.

    Another name than `route`: a gateway of its own that still drains must not read it, since it
    does not say whom to let in.
    """
    return f"{name}{labels.MEMBER_ROUTE_SUFFIX}"


def evidence(name: str) -> str:
    """ConfigMap that holds what was measured about a canary so far."""
    return f"{name}{labels.EVIDENCE_SUFFIX}"


def preflight(name: str, hash_: str, started_at: str, *, stage: str) -> str:
    """Job of a stage before a revision's pods; another attempt has another name.

    So no attempt is taken for another one. At most 62 characters.
    """
    moment = int(datetime.fromisoformat(started_at).timestamp())
    return f"{revision(name, hash_)}-{stage[0].lower()}{moment:x}"


def drift(name: str) -> str:
    """ConfigMap that holds what was measured of stable beside its own first hours."""
    return f"{name}-drift"


def common_labels(name: str) -> Labels:
    """Labels of every child: who made it and for which resource."""
    return {labels.MANAGED_BY: labels.MANAGER, labels.NAME: name}


def component_labels(name: str, component: str) -> Labels:
    """Labels of one part, `labels.COMPONENT_WORKER` or `labels.COMPONENT_GATEWAY`."""
    return common_labels(name) | {labels.COMPONENT: component}


def shared_labels(gateway: str) -> Labels:
    """Labels of what belongs to a shared gateway and to none of its members alone."""
    return {
        labels.MANAGED_BY: labels.MANAGER,
        labels.SHARED_GATEWAY: gateway,
        labels.COMPONENT: labels.COMPONENT_GATEWAY,
    }


def worker_labels(name: str, hash_: str) -> Labels:
    """Labels of one revision's pods and of what belongs to them."""
    return component_labels(name, labels.COMPONENT_WORKER) | {labels.REVISION: hash_}


def selector(labels_: Labels) -> Labels:
    """The part of the labels that a selector matches on: all but the manager's name."""
    return {key: value for key, value in labels_.items() if key != labels.MANAGED_BY}


def owner_reference(name: str, uid: str) -> dict[str, Any]:
    """The controller reference to the resource.

    `blockOwnerDeletion` is false: true would need rights on finalizers, and a
    deletion must never wait for us.
    """
    return {
        "apiVersion": f"{labels.GROUP}/{labels.VERSION}",
        "kind": labels.KIND,
        "name": name,
        "uid": uid,
        "controller": True,
        "blockOwnerDeletion": False,
    }


def member_reference(name: str, uid: str) -> dict[str, Any]:
    """One of several owners, of which none is the controller: the last one's end takes it away."""
    found = owner_reference(name, uid)
    del found["controller"]
    return found
