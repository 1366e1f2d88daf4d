"""Pure: what Envoy reads once per life: bootstrap and listener.

Settings in, dictionaries out; the supervisor writes them before Envoy starts.
The listener is frozen on purpose: a changed one does not reach kept-alive
connections and cuts streams when its drain time ends (measured, Envoy 1.40).
Whatever may change lives in the files of `render`.
"""

from typing import Any

from speculative_api import labels

from .configuration import CDS_FILE, RDS_FILE, ROUTES, RTDS_FILE, WEIGHTS_LAYER, watched, wrapped
from .fallback import ANSWERING
from .policies import COST_HEADER, filters
from .settings import Settings

LDS_FILE = "lds.json"
CUT_STATISTIC = "speculative.cut"
"""Counter, by revision: answers that began and did not end (see `_cuts`)."""

NO_KEY = "Missing or unknown API key: send it as 'Authorization: Bearer KEY' or 'x-api-key: KEY'."
TOO_MANY = "Too many requests with this API key: try again after the seconds in Retry-After."

_TYPE = "type.googleapis.com/"
_FILTERS = _TYPE + "envoy.extensions.filters.http."
_LOGGERS = _TYPE + "envoy.extensions.access_loggers."


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
    manager = {
        "@type": _TYPE + "envoy.extensions.filters.network.http_connection_manager.v3."
        "HttpConnectionManager",
        "stat_prefix": "gw",
        "rds": {"route_config_name": ROUTES, "config_source": watched(settings.xds / RDS_FILE)},
        "use_remote_address": True,
        "normalize_path": True,
        "merge_slashes": True,
        "preserve_external_request_id": True,
        "always_set_request_id_in_response": True,
        "request_headers_timeout": "30s",
        # Routes with backends set their own; this one is for the rest.
        "stream_idle_timeout": "300s",
        "early_header_mutation_extensions": [_no_forged_headers()],
        "http_filters": [
            *filters(),
            {
                "name": "envoy.filters.http.router",
                "typed_config": {"@type": _FILTERS + "router.v3.Router"},
            },
        ],
        "local_reply_config": _own_answers(),
        "access_log": [_log(), _cuts()],
    }
    return wrapped(
        "envoy.config.listener.v3.Listener",
        {
            "name": "users",
            "address": _address(settings.listen_address, settings.gateway_port),
            "per_connection_buffer_limit_bytes": 1024 * 1024,
            "filter_chains": [
                {
                    "filters": [
                        {
                            "name": "envoy.filters.network.http_connection_manager",
                            "typed_config": manager,
                        }
                    ]
                }
            ],
        },
    )


def _address(address: str, port: int) -> dict[str, Any]:
    return {"socket_address": {"address": address, "port_value": port}}


def _no_forged_headers() -> dict[str, Any]:
    """Only we say who the client is and what a request costs."""
    kind = "envoy.extensions.http.early_header_mutation.header_mutation.v3.HeaderMutation"
    mutations = [{"remove": header} for header in (labels.CLIENT_HEADER, COST_HEADER)]
    return {
        "name": "envoy.http.early_header_mutation.header_mutation",
        "typed_config": {"@type": _TYPE + kind, "mutations": mutations},
    }


def _own_answers() -> dict[str, Any]:
    """Envoy's own answers (401, 404, 429, 503) in the shape of an OpenAI error."""

    def body(
        kind: str, code: str = "%RESPONSE_CODE%", message: str = "%LOCAL_REPLY_BODY%"
    ) -> dict[str, Any]:
        return {
            "json_format": {"error": {"message": message, "type": kind, "code": code}},
            "content_type": "application/json",
        }

    def answer(status: int, name: str, form: dict[str, Any], **headers: str) -> dict[str, Any]:
        return {
            "filter": {
                "status_code_filter": {
                    "comparison": {
                        "op": "EQ",
                        "value": {"default_value": status, "runtime_key": f"speculative.{name}"},
                    }
                }
            },
            "body_format_override": form,
            "headers_to_add": [
                {
                    "header": {"key": key.replace("_", "-"), "value": value},
                    "append_action": "OVERWRITE_IF_EXISTS_OR_ADD",
                }
                for key, value in headers.items()
            ],
        }

    unauthorized = body("invalid_request_error", "invalid_api_key", NO_KEY)
    mappers = [
        answer(503, "unavailable", body("service_unavailable_error"), retry_after="5"),
        answer(401, "unauthorized", unauthorized, www_authenticate="Bearer"),
        answer(429, "limited", body("requests", "rate_limit_exceeded", TOO_MANY)),
    ]
    return {"mappers": mappers, "body_format": body("invalid_request_error")}


def _log() -> dict[str, Any]:
    """One JSON line per request on standard output; never a header with a key, never a body."""
    return {
        "name": "envoy.access_loggers.stdout",
        "typed_config": {
            "@type": _LOGGERS + "stream.v3.StdoutAccessLog",
            "log_format": {
                "json_format": {
                    "time": "%START_TIME%",
                    "method": "%REQ(:METHOD)%",
                    "path": "%PATH(NQ)%",
                    "revision": "%UPSTREAM_CLUSTER%",
                    "answered_by": ANSWERING,
                    "client": f"%REQ({labels.CLIENT_HEADER})%",
                    "lane": f"%REQ({labels.LANE_HEADER})%",
                    "status": "%RESPONSE_CODE%",
                    "flags": "%RESPONSE_FLAGS%",
                    "details": "%RESPONSE_CODE_DETAILS%",
                    "upstream": "%UPSTREAM_HOST%",
                    "attempts": "%UPSTREAM_REQUEST_ATTEMPT_COUNT%",
                    "first_byte_milliseconds": "%RESPONSE_DURATION%",
                    "duration_milliseconds": "%DURATION%",
                    "bytes_sent": "%BYTES_SENT%",
                    "request_id": "%REQ(x-request-id)%",
                }
            },
        },
    }


def _cuts() -> dict[str, Any]:
    """Counts answers that began and that the gateway could not finish.

    Envoy's own reset counters also hold resets before the first byte, which
    the user sees as a plain 503. Here: the status was already sent (below 500)
    and the flag says upstream termination (UC), reset (UR), protocol error
    (UPE), timeout (UT) or silence beyond the idle timeout (SI). A client that
    hangs up (DC) is not counted.
    """
    return {
        "name": "envoy.access_loggers.stats",
        "filter": {
            "and_filter": {
                "filters": [
                    {"response_flag_filter": {"flags": ["UC", "UR", "UPE", "UT", "SI"]}},
                    {
                        "status_code_filter": {
                            "comparison": {
                                "op": "LE",
                                "value": {"default_value": 499, "runtime_key": "speculative.begun"},
                            }
                        }
                    },
                ]
            }
        },
        "typed_config": {
            "@type": _LOGGERS + "stats.v3.Config",
            # Its successor wants a whole stats scope; the wheel is pinned below 1.41.
            "stat_prefix": "speculative",
            "counters": [
                {
                    "stat": {
                        "name": "cut",
                        "tags": [{"name": "revision", "value_format": "%UPSTREAM_CLUSTER%"}],
                    },
                    "value_fixed": 1,
                }
            ],
        },
    }
