"""What is said of a resource at a shared gateway, for the conditions Accepted and GatewayReady.

Called by `status`.
"""

from speculative_api.conditions import Reason
from speculative_operator.snapshot import SharedView, Snapshot

_MOST_NAMED = 10
Why = tuple[Reason, str]


def not_in_force(snapshot: Snapshot) -> Why | None:
    """What of the spec has no effect, because others at the gateway say otherwise; None if all
    of it has.
    """
    shared = snapshot.shared
    if shared is None:
        return None
    if shared.differing:
        return Reason.SHARED_SETTINGS_DIFFER, _differing(shared)
    if shared.lost_hosts:
        hosts = ", ".join(shared.lost_hosts)
        message = (
            f"gateway.hosts: {hosts} is another resource's at gateway {shared.gateway}: leave it "
            "out here or there"
        )
        return Reason.HOST_TAKEN, message
    return None


def not_at_it(snapshot: Snapshot) -> Why | None:
    """Why no request can be sent to it through the gateway; None where nothing is in the way."""
    shared = snapshot.shared
    if shared is None:
        return None
    if shared.conflicts:
        things = ", ".join(shared.conflicts)
        message = (
            f"{things}: needed for gateway {shared.gateway} and somebody else's, or refused: "
            "remove it, or use another gateway.shared.name."
        )
        return Reason.NAME_CONFLICT, message
    if not shared.joined and shared.differing:
        message = f"No request is sent here by gateway {shared.gateway} yet: {_differing(shared)}"
        return Reason.SHARED_SETTINGS_DIFFER, f"{message}."
    return None


def company(snapshot: Snapshot) -> str:
    """Who else is at the gateway, as a sentence; empty where it has one of its own."""
    shared = snapshot.shared
    if shared is None:
        return ""
    named = ", ".join(shared.others[:_MOST_NAMED]) or "nobody else yet"
    more = ", …" if len(shared.others) > _MOST_NAMED else ""
    return f" Gateway {shared.gateway}, shared with {named}{more}."


def _differing(shared: SharedView) -> str:
    others = ", ".join(shared.others[:_MOST_NAMED])
    with_whom = f" (with {others})" if others else ""
    return (
        f"{'; '.join(shared.differing)} at gateway {shared.gateway}{with_whom}, which goes on with "
        "what is there until all its members say the same: say the same here, or change them all"
    )
