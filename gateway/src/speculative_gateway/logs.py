"""Pure: what is written and counted about every request, as Envoy's access loggers.

One JSON line per request, and figures by revision and lane that the agent
passes on to Prometheus. Never a body, a query string or a header with a key.
"""

from typing import Any

from speculative_api import labels

from .fallback import ANSWERING
from .kinds import KIND
from .usage import USAGE

STATISTICS = "speculative"
"""Prefix of the counted figures."""
LANE = "speculative.lane"
"""Metadata key of a route with its lane's name."""
MEMBER = "speculative.member"
"""Metadata key of a route and of a cluster with the SpeculativeDeployment they are of, and of a
cluster with its revision; only where a gateway has several."""
LANE_OF_ROUTE = f"%METADATA(ROUTE:{LANE}:name)%"
FIRST_BYTE = "%COMMON_DURATION(DS_RX_BEG:US_RX_BODY_BEG:ms)%"
"""An engine sends the headers of a stream before its first token: only the body tells."""
OVERFLOW = "UO"
"""Envoy's flag of a request that a bound on requests in flight refused."""

_LOGGERS = "type.googleapis.com/envoy.extensions.access_loggers."
ASKED = f"%DYNAMIC_METADATA({KIND}:asked)%"
_OF_A_MEMBER = {
    "deployment": f"%METADATA(ROUTE:{MEMBER}:name)%",
    "revision": f"%METADATA(CLUSTER:{MEMBER}:revision)%",
}
_USED = f"%DYNAMIC_METADATA({USAGE}:{{}})%"


def loggers(*, with_members: bool = False) -> list[dict[str, Any]]:
    """Everything that is written and counted."""
    lines = _lines(_OF_A_MEMBER if with_members else {"revision": "%UPSTREAM_CLUSTER%"})
    return [lines, _times(), _tokens("prompt"), _tokens("completion"), _answers()]


def _lines(whose: dict[str, str]) -> dict[str, Any]:
    return {
        "name": "envoy.access_loggers.stdout",
        "typed_config": {
            "@type": _LOGGERS + "stream.v3.StdoutAccessLog",
            "log_format": {
                "json_format": {
                    "time": "%START_TIME%",
                    "method": "%REQ(:METHOD)%",
                    "path": "%PATH(NQ)%",
                    **whose,
                    "answered_by": ANSWERING,
                    "client": f"%REQ({labels.CLIENT_HEADER})%",
                    "lane": LANE_OF_ROUTE,
                    "status": "%RESPONSE_CODE%",
                    "flags": "%RESPONSE_FLAGS%",
                    "details": "%RESPONSE_CODE_DETAILS%",
                    "upstream": "%UPSTREAM_HOST%",
                    "upstream_tls_failure": "%UPSTREAM_TRANSPORT_FAILURE_REASON%",
                    "attempts": "%UPSTREAM_REQUEST_ATTEMPT_COUNT%",
                    "kind": ASKED,
                    "prompt_tokens": _USED.format("prompt"),
                    "completion_tokens": _USED.format("completion"),
                    "events": _USED.format("events"),
                    "first_byte_milliseconds": FIRST_BYTE,
                    "duration_milliseconds": "%DURATION%",
                    "bytes_received": "%BYTES_RECEIVED%",
                    "bytes_sent": "%BYTES_SENT%",
                    "request_id": "%REQ(x-request-id)%",
                }
            },
        },
    }


def _times() -> dict[str, Any]:
    """How long workers' answers below 500 took; our own have no first byte of a worker."""

    def histogram(name: str, value: str) -> dict[str, Any]:
        return {"stat": _stat(name), "unit": "Milliseconds", "value_format": value}

    cel = {
        "name": "envoy.access_loggers.extension_filters.cel",
        "typed_config": {
            "@type": _LOGGERS + "filters.cel.v3.ExpressionFilter",
            "expression": "response.code_details == 'via_upstream' && response.code < 500",
        },
    }
    return {
        "name": "envoy.access_loggers.stats",
        "filter": {"extension_filter": cel},
        "typed_config": _statistics(
            histograms=[
                histogram("first_byte_milliseconds", FIRST_BYTE),
                histogram("duration_milliseconds", "%DURATION%"),
            ],
        ),
    }


def _tokens(kind: str) -> dict[str, Any]:
    """Sums up what workers say they used, where they say it."""
    said = {"filter": USAGE, "path": [{"key": kind}], "value": {"present_match": True}}
    stat = {"stat": _stat(f"{kind}_tokens"), "value_format": _USED.format(kind)}
    return {
        "name": "envoy.access_loggers.stats",
        "filter": {"metadata_filter": {"matcher": said, "match_if_key_not_found": False}},
        "typed_config": _statistics(counters=[stat]),
    }


def _answers() -> dict[str, Any]:
    """Counts every answer, once it has ended, with what `state` needs to say whose it is.

    Not taken from the clusters' own counters: those begin anew when a cluster's
    settings change, hold our refusals, and can't tell an answer that broke off
    from one that never began.
    """
    stat = {
        "name": "answers",
        "tags": [
            _tag("revision", "%UPSTREAM_CLUSTER%"),
            _tag("by", ANSWERING),
            _tag("status", "%RESPONSE_CODE%"),
            _tag("kind", ASKED),
            _tag("flags", "%RESPONSE_FLAGS%"),
        ],
    }
    return {
        "name": "envoy.access_loggers.stats",
        "typed_config": _statistics(counters=[{"stat": stat, "value_fixed": 1}]),
    }


def _statistics(**figures: list[dict[str, Any]]) -> dict[str, Any]:
    # The prefix's successor wants a whole stats scope; the wheel is pinned below 1.41.
    return {"@type": _LOGGERS + "stats.v3.Config", "stat_prefix": STATISTICS, **figures}


def _stat(name: str) -> dict[str, Any]:
    return {
        "name": name,
        "tags": [_tag("revision", "%UPSTREAM_CLUSTER%"), _tag("lane", LANE_OF_ROUTE)],
    }


def _tag(name: str, value: str) -> dict[str, str]:
    return {"name": name, "value_format": value}
