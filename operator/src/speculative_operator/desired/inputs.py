"""What `desired_objects` may depend on: a snapshot without what moves in every pass.

The rest of the pass sees everything; the objects follow from this alone, so that equal
inputs need not be rendered and compared again. `reconcile` calls it once per pass.
"""

from dataclasses import replace
from datetime import UTC, datetime
from typing import Final

from speculative_operator.desired.native import SILENT_SECONDS
from speculative_operator.snapshot import GatewayPod, Snapshot

NO_TIME: Final = datetime(1970, 1, 1, tzinfo=UTC)


def inputs_of(snapshot: Snapshot) -> Snapshot:
    """The snapshot without time, digests of workers, and short silences of gateways.

    Only a schedule makes objects depend on the time.
    """
    autoscaling = snapshot.spec.autoscaling
    return replace(
        snapshot,
        now=snapshot.now if autoscaling and autoscaling.schedules else NO_TIME,
        pods=tuple(replace(pod, digest=None) for pod in snapshot.pods),
        gateways=tuple(_gateway(gateway) for gateway in snapshot.gateways),
    )


def _gateway(gateway: GatewayPod) -> GatewayPod:
    silent = gateway.silent_seconds
    state = gateway.state
    return replace(
        gateway,
        silent_seconds=silent if silent >= SILENT_SECONDS else 0.0,
        state=state and state.model_copy(update={"sampled_at": 0.0}),
    )
