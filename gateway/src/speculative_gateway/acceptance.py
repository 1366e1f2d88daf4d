"""Pure: may this route be used?

The agent asks before it renders. A refused route changes nothing: the last
good one stays, and `/state` says why.
"""

from collections.abc import Collection

from pydantic import ValidationError

from speculative_api import gateway

from .errors import RouteRefused
from .render import Endpoints
from .upstream_tls import AUTHORITY_KEY


def accepted(
    text: str,
    endpoints: Endpoints,
    *,
    last: gateway.Route | None,
    authorities: Collection[str] = (),
) -> gateway.Route:
    """The parsed route, if it may follow `last` in a pod with these `authorities` mounted.

    A route of another owner is accepted whatever its sequence: a resource that
    was deleted and made again counts from the start.

    Raises:
        RouteRefused: with the reason, for people.
    """
    try:
        route = gateway.Route.model_validate_json(text)
    except ValidationError as error:
        raise RouteRefused(f"route refused: {reasons(error)}") from error
    if last is not None and last.owner_uid == route.owner_uid and route.sequence < last.sequence:
        raise RouteRefused(
            f"route refused: sequence {route.sequence} is older than {last.sequence}, "
            "which was applied"
        )
    _refuse_strangers(route, authorities)
    _refuse_dead_ends(route, endpoints, last)
    return route


def reasons(error: ValidationError) -> str:
    """Where a text is wrong and how."""
    return "; ".join(
        f"{'.'.join(str(part) for part in each['loc']) or 'route'}: {each['msg']}"
        for each in error.errors()
    )


def _refuse_strangers(route: gateway.Route, authorities: Collection[str]) -> None:
    """Engines whose authority is not mounted here could not be told from anybody else."""
    revisions = [*route.backends, *([route.native] if route.native else [])]
    for each in revisions:
        if each.tls is not None and each.tls.authority not in authorities:
            raise RouteRefused(
                f"route refused: this pod has no {AUTHORITY_KEY} of Secret {each.tls.authority} "
                f"mounted, which {each.hash} needs: its successor will"
            )


def _refuse_dead_ends(
    route: gateway.Route, endpoints: Endpoints, last: gateway.Route | None
) -> None:
    """No weight is raised for a revision without ready endpoints while another one serves.

    Where nothing serves, a route can't make it worse and is accepted.
    """
    before = {each.hash: each for each in last.backends} if last else {}
    serving = any(each.weight and endpoints.get(each.service) for each in before.values())
    if not serving:
        return
    for each in route.backends:
        raised = each.weight > (before[each.hash].weight if each.hash in before else 0)
        if raised and not endpoints.get(each.service):
            raise RouteRefused(
                f"route refused: weight {each.weight} for {each.hash}, "
                f"but service {each.service} has no ready endpoint"
            )
    _refuse_copies_for_nobody(route, endpoints, last)


def _refuse_copies_for_nobody(
    route: gateway.Route, endpoints: Endpoints, last: gateway.Route | None
) -> None:
    """Nor are copies made for a revision that could not answer one."""
    shadow, before = route.shadow, last.shadow if last else None
    known = before.percent if shadow and before and before.hash == shadow.hash else 0
    if shadow is None or shadow.percent <= known:
        return
    service = next(each.service for each in route.backends if each.hash == shadow.hash)
    if not endpoints.get(service):
        raise RouteRefused(
            f"route refused: shadow of {shadow.percent} percent for {shadow.hash}, but service "
            f"{service} has no ready endpoint"
        )
