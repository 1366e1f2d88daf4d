"""Pure: Envoy's own answers (401, 404, 429, 503) in the shape of an OpenAI error."""

from typing import Any

from .logs import OVERFLOW

NO_KEY = (
    "Missing or unknown API key or token (%LOCAL_REPLY_BODY%): send it as 'Authorization: Bearer "
    "KEY', or a key as 'x-api-key: KEY'."
)
TOO_MANY = "Too many requests with this API key: try again after the seconds in Retry-After."
OVERLOADED = "As many requests as may wait are waiting: try again after the seconds in Retry-After."
FORBIDDEN = "This address, or this token, may not send requests here (%LOCAL_REPLY_BODY%)."
UNKNOWN_MODEL = "unknown-model"
"""Name of the route of requests that name none of the models here."""
UNAVAILABLE = "service_unavailable_error"
RETRY_SECONDS = "5"


def own_answers(*, with_members: bool = False) -> dict[str, Any]:
    """The listener's `local_reply_config`; the first that fits is used."""
    overflow = {"response_flag_filter": {"flags": [OVERFLOW]}}
    unauthorized = _body("invalid_request_error", "invalid_api_key", NO_KEY)
    limited = _body("requests", "rate_limit_exceeded", TOO_MANY)
    overloaded = _body(UNAVAILABLE, "overloaded", OVERLOADED)
    mappers = [
        *(_of_members() if with_members else ()),
        _answer(overflow, overloaded, retry_after=RETRY_SECONDS),
        _answer(_with(503, "unavailable"), _body(UNAVAILABLE), retry_after=RETRY_SECONDS),
        _answer(_with(401, "unauthorized"), unauthorized, www_authenticate="Bearer"),
        _answer(_with(429, "limited"), limited),
        _answer(_with(403, "forbidden"), _body("invalid_request_error", "forbidden", FORBIDDEN)),
    ]
    return {"mappers": mappers, "body_format": _body("invalid_request_error")}


def _of_members() -> list[dict[str, Any]]:
    """The list of models is an answer and no error; a model that is not here has a code."""
    as_it_is = {
        "text_format_source": {"inline_string": "%LOCAL_REPLY_BODY%"},
        "content_type": "application/json",
    }
    unknown = {
        "name": "envoy.access_loggers.extension_filters.cel",
        "typed_config": {
            "@type": "type.googleapis.com/envoy.extensions.access_loggers.filters.cel.v3."
            "ExpressionFilter",
            "expression": f"xds.route_name == '{UNKNOWN_MODEL}'",
        },
    }
    not_found = _body("invalid_request_error", "model_not_found")
    return [
        _answer(_with(200, "listed"), as_it_is),
        _answer({"extension_filter": unknown}, not_found),
    ]


def _body(
    kind: str, code: str = "%RESPONSE_CODE%", message: str = "%LOCAL_REPLY_BODY%"
) -> dict[str, Any]:
    return {
        "json_format": {"error": {"message": message, "type": kind, "code": code}},
        "content_type": "application/json",
    }


def _with(status: int, name: str) -> dict[str, Any]:
    value = {"default_value": status, "runtime_key": f"speculative.{name}"}
    return {"status_code_filter": {"comparison": {"op": "EQ", "value": value}}}


def _answer(when: dict[str, Any], form: dict[str, Any], **headers: str) -> dict[str, Any]:
    return {
        "filter": when,
        "body_format_override": form,
        "headers_to_add": [
            {
                "header": {"key": key.replace("_", "-"), "value": value},
                "append_action": "OVERWRITE_IF_EXISTS_OR_ADD",
            }
            for key, value in headers.items()
        ],
    }
