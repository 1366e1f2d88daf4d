"""Pure: what Envoy reads once per life: bootstrap and listener.

Settings in, dictionaries out; the supervisor writes them before Envoy starts.
The listener is frozen on purpose: a changed one does not reach kept-alive
connections and cuts streams when its drain time ends (measured, Envoy 1.40).
Whatever may change lives in the files of `render`.
"""

from typing import Any

from speculative_api import labels

from .answers import own_answers
from .certificate import transport_socket
from .configuration import CDS_FILE, RDS_FILE, ROUTES, RTDS_FILE, WEIGHTS_LAYER, watched, wrapped
from .logs import loggers
from .policies import COST_HEADER, filters
from .settings import Settings

LDS_FILE = "lds.json"
NOBODY = {"address_prefix": "255.255.255.255", "prefix_len": 32}
"""The range of internal clients, whose x-envoy-* headers are commands. Left out or empty it holds
private addresses and loopback: every pod of the cluster (measured, Envoy 1.40)."""
MOST_CONNECTIONS = 20_000
"""Further ones are closed at once: idle ones must not take the memory of those that work."""

_TYPE = "type.googleapis.com/"
_FILTERS = _TYPE + "envoy.extensions.filters.http."


def bootstrap(settings: Settings) -> dict[str, Any]:
    """Envoy's static configuration."""
    xds = settings.xds
    return {
        "node": {"cluster": "speculative-gateway"},
        "admin": {
            "address": _address("127.0.0.1", settings.admin_port),
            "ignore_global_conn_limit": True,
        },
        "dynamic_resources": {
            "lds_config": watched(xds / LDS_FILE),
            "cds_config": watched(xds / CDS_FILE),
        },
        "overload_manager": {
            "resource_monitors": [
                {
                    "name": "envoy.resource_monitors.global_downstream_max_connections",
                    "typed_config": {
                        "@type": _TYPE + "envoy.extensions.resource_monitors."
                        "downstream_connections.v3.DownstreamConnectionsConfig",
                        "max_active_downstream_connections": MOST_CONNECTIONS,
                    },
                }
            ]
        },
        "layered_runtime": {
            "layers": [
                {
                    "name": WEIGHTS_LAYER,
                    "rtds_layer": {
                        "name": WEIGHTS_LAYER,
                        "rtds_config": watched(xds / RTDS_FILE),
                    },
                },
                {"name": "admin", "admin_layer": {}},
            ]
        },
    }


def listener(settings: Settings) -> dict[str, Any]:
    """The one listener, as a discovery response."""
    return wrapped(
        "envoy.config.listener.v3.Listener",
        {
            "name": "users",
            "address": _address(settings.listen_address, settings.gateway_port),
            "per_connection_buffer_limit_bytes": 1024 * 1024,
            "filter_chains": [
                {
                    **_encryption(settings),
                    "filters": [
                        {
                            "name": "envoy.filters.network.http_connection_manager",
                            "typed_config": _manager(settings),
                        }
                    ],
                }
            ],
        },
    )


def _manager(settings: Settings) -> dict[str, Any]:
    """How requests are read, by whom they are counted, and what is answered to bad ones."""
    return {
        "@type": _TYPE + "envoy.extensions.filters.network.http_connection_manager.v3."
        "HttpConnectionManager",
        "stat_prefix": "gw",
        "rds": {"route_config_name": ROUTES, "config_source": watched(settings.xds / RDS_FILE)},
        "use_remote_address": True,
        "xff_num_trusted_hops": settings.trusted_proxy_hops,
        "internal_address_config": {"cidr_ranges": [NOBODY]},
        "normalize_path": True,
        "merge_slashes": True,
        # Engines decode them: the path that is looked at here is to be the one that is served.
        "path_with_escaped_slashes_action": "UNESCAPE_AND_FORWARD",
        "preserve_external_request_id": True,
        "always_set_request_id_in_response": True,
        # For clients that send slowly to hold a place; an answer may take as long as it takes.
        "request_headers_timeout": f"{settings.headers_seconds:g}s",
        "request_timeout": f"{settings.request_seconds:g}s",
        "common_http_protocol_options": {"headers_with_underscores_action": "DROP_HEADER"},
        "http2_protocol_options": {
            "max_concurrent_streams": 1024,
            # A client that reads slowly may hold so much of each of its answers.
            "initial_stream_window_size": 65_536,
            "initial_connection_window_size": 1_048_576,
        },
        # Routes with backends set their own; this one is for the rest.
        "stream_idle_timeout": "300s",
        "early_header_mutation_extensions": [_no_forged_headers()],
        "http_filters": [
            *filters(settings.xds),
            {
                "name": "envoy.filters.http.router",
                "typed_config": {
                    "@type": _FILTERS + "router.v3.Router",
                    # Neither what a request asks of Envoy nor what Envoy knows of workers.
                    "suppress_envoy_headers": True,
                    # The clusters' counters of answers by code: copies have no line in the log.
                    "dynamic_stats": True,
                },
            },
        ],
        "local_reply_config": own_answers(with_members=bool(settings.shared_gateway)),
        "access_log": loggers(with_members=bool(settings.shared_gateway)),
    }


def _encryption(settings: Settings) -> dict[str, Any]:
    if settings.tls_directory is None:
        return {}
    socket = transport_socket(settings.xds, minimum=settings.tls_minimum)
    return {"transport_socket": socket}


def _address(address: str, port: int) -> dict[str, Any]:
    return {"socket_address": {"address": address, "port_value": port}}


def _no_forged_headers() -> dict[str, Any]:
    """Only we say who the client is and what a request costs, and nobody commands Envoy."""
    kind = "envoy.extensions.http.early_header_mutation.header_mutation.v3.HeaderMutation"
    ours = (labels.CLIENT_HEADER, COST_HEADER, labels.REVISION_HEADER)
    mutations = [
        *({"remove": header} for header in ours),
        {"remove_on_match": {"key_matcher": {"prefix": "x-envoy-"}}},
    ]
    return {
        "name": "envoy.http.early_header_mutation.header_mutation",
        "typed_config": {"@type": _TYPE + kind, "mutations": mutations},
    }
