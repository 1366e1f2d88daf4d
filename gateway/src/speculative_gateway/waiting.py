"""Pure: requests that find no worker go to the agent, as Envoy's clusters and routes.

The agent stands last in every revision's aggregate, so a request gets there
only while no worker is healthy. It says "try again" when one is (Envoy still
has the request, and chooses anew), or answers 503. Called by `render` and
`routes`; the agent's half is `holding`.
"""

from typing import Any

from speculative_api import gateway, labels

from .configuration import WAITING, marked

MOST_AT_ONCE = 1024
"""Requests that one Envoy has at its agent at once; more get Envoy's own 503."""


def waiting_cluster(port: int) -> dict[str, Any]:
    """The agent as a cluster: always healthy, since nothing stands behind it."""
    address = {"socket_address": {"address": "127.0.0.1", "port_value": port}}
    return marked(
        {
            "name": WAITING,
            "type": "STATIC",
            "connect_timeout": "1s",
            "load_assignment": {
                "cluster_name": WAITING,
                "endpoints": [{"lb_endpoints": [{"endpoint": {"address": address}}]}],
            },
            "circuit_breakers": {"thresholds": [{"max_requests": MOST_AT_ONCE}]},
        }
    )


def named(route: gateway.Route, revision: str) -> dict[str, Any]:
    """What tells the agent for whom a request waits; clients can't say it (see `bootstrap`)."""
    if route.waiting is None:
        return {}
    header = {"key": labels.REVISION_HEADER, "value": revision}
    return {"request_headers_to_add": [{"header": header, "append_action": _REPLACE}]}


def with_another_try(retries: dict[str, Any]) -> dict[str, Any]:
    """The retries, and one when the agent says that a worker is there: none has begun then."""
    return {
        **retries,
        "retry_on": retries["retry_on"] + ",retriable-headers",
        "retriable_headers": [{"name": labels.WORKER_THERE_HEADER, "present_match": True}],
    }


_REPLACE = "OVERWRITE_IF_EXISTS_OR_ADD"
