"""What can be said about the way to users where no gateway of ours can be asked.

For the conditions Accepted and GatewayReady; called by `status`.
"""

from typing import Literal

from speculative_api.conditions import Reason
from speculative_api.v1alpha1 import GatewayMode, Place, Provider
from speculative_operator.rollout.gateways import UNSEEN_SECONDS, is_accepted, is_reachable
from speculative_operator.snapshot import RouteParent, Snapshot

Said = tuple[Literal["True", "False", "Unknown"], Reason, str]

NO_GATEWAY = (
    "gateway.mode is None: the Service leads to the pods of stable, and nothing here counts "
    "requests or errors."
)
LIMITS = (
    "What a Gateway really uses can't be read back: a weight counts "
    f"{UNSEEN_SECONDS:.0f} s after it was written and accepted, errors are not counted, sessions "
    "are not kept on one revision."
)
"""What mode GatewayAPI can't do, said where people look."""


def lacking(snapshot: Snapshot) -> str:
    """Which kind the spec needs and the cluster has not; empty when there is none."""
    rollout = snapshot.spec.rollout
    by_job = Place.JOB in (rollout.preflight, rollout.download)
    if by_job and "Job" in snapshot.missing_kinds:
        return (
            "rollout.preflight or rollout.download Job needs the right to Jobs of batch/v1, which "
            "the operator has not: update the chart, or use InPod"
        )
    if snapshot.lacks_groups:
        return (
            f"target.nodesPerReplica {snapshot.spec.target.nodes_per_replica} needs the kind "
            "LeaderWorkerSet of leaderworkerset.x-k8s.io/v1, which is not there or which the "
            "operator may not read: install LeaderWorkerSet, update the chart, or use one node; "
            "no revision of several nodes starts until then"
        )
    missing, scaling = snapshot.missing_kinds, snapshot.spec.autoscaling
    if snapshot.spec.gateway.mode is GatewayMode.GATEWAY_API and "HTTPRoute" in missing:
        return (
            "gateway.mode GatewayAPI needs the kind HTTPRoute of gateway.networking.k8s.io/v1, "
            "which is not there or which the operator may not read: install the Gateway API's "
            "CRDs, update the chart, or use mode Envoy"
        )
    if snapshot.spec.gateway.endpoint_picker_ref and "InferencePool" in missing:
        return (
            "gateway.backend InferencePool needs the kind InferencePool of "
            "inference.networking.k8s.io/v1, which is not there or which the operator may not "
            "read: install the Gateway API Inference Extension's CRDs, update the chart, or use "
            "backend Service; the route stays as it is"
        )
    if scaling and scaling.provider is Provider.KEDA and "ScaledObject" in missing:
        return (
            "autoscaling.provider KEDA needs the kind ScaledObject of keda.sh/v1alpha1, which is "
            "not there or which the operator may not read: install KEDA, update the chart, or use "
            "provider HPA; replicas stay as they are"
        )
    return ""


def reachability(snapshot: Snapshot) -> Said:
    """Status, reason and message of GatewayReady."""
    parent = snapshot.spec.gateway.parent_ref
    if snapshot.spec.gateway.mode is GatewayMode.NONE or parent is None:
        return "Unknown", Reason.NO_GATEWAY, NO_GATEWAY
    if missing := lacking(snapshot):
        return "False", Reason.KIND_MISSING, missing
    route = snapshot.http_route
    place = f"Gateway {parent.namespace or snapshot.namespace}/{parent.name}"
    if route is None or not route.parents:
        message = f"No controller has answered for {place}: does it exist, and does one run?"
        return "False", Reason.ROUTE_NOT_ACCEPTED, f"{message} {LIMITS}"
    stable = snapshot.status.stable
    if is_accepted(route) and stable is not None and not is_reachable(snapshot, stable.hash):
        words = pool_words(snapshot, stable.hash)
        return "False", Reason.POOL_NOT_ACCEPTED, f"{place} has accepted the route, but {words}."
    if is_accepted(route):
        return "True", Reason.ROUTE_ACCEPTED, f"{place} has accepted the route. {LIMITS}"
    said = _said(route.parents, "a newer route is not looked at yet")
    return "False", Reason.ROUTE_NOT_ACCEPTED, f"{place}: {said}. {LIMITS}"


def pool_words(snapshot: Snapshot, revision: str) -> str:
    """Why a Gateway does not send to a revision's InferencePool."""
    picker, pool = snapshot.spec.gateway.endpoint_picker_ref, snapshot.pools.get(revision)
    name = f"InferencePool {snapshot.name}-{revision}"
    if pool is None or not pool.parents:
        said = "no Gateway has answered for it"
    else:
        said = _said(pool.parents, "its newest version is not looked at yet")
    service = picker.of(revision) if picker is not None else ""
    return f"{name} is not accepted: {said}; its endpoint picker is Service {service}"


def _said(parents: tuple[RouteParent, ...], otherwise: str) -> str:
    return "; ".join(parent.message or otherwise for parent in parents)
