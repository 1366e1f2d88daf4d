"""Pure: who is let in and how often, as Envoy's filters and their part of the route.

`filters` goes into the frozen listener; `policies` into the virtual host, where a
change reaches kept-alive connections too (measured, Envoy 1.40). `guards` has what
differs between the members of a shared gateway.
"""

import ipaddress
from collections.abc import Mapping, Sequence
from pathlib import PurePath
from typing import Any

from speculative_api import gateway, labels

from .concurrency import ANSWERS, answers_filter, at_most
from .configuration import OFF, TOKENS
from .errors import RouteRefused
from .keys import Keys
from .tokens import REQUIREMENT, asked_of, tokens_filter

BODY_LIMIT = "envoy.filters.http.buffer"
ADDRESSES = "envoy.filters.http.rbac"
API_KEYS = "envoy.filters.http.api_key_auth"
REQUEST_LIMIT = "envoy.filters.http.local_ratelimit"
COST = "envoy.filters.http.lua"
CHARGE_LIMIT = "speculative.charge_limit"
"""A second filter of the request limit's kind, under a name of its own."""
COST_HEADER = "x-speculative-cost"
"""Between our filters only: tokens that a request is charged."""
UNSAID_TOKENS = 1024
"""Charged for the answer where a request does not say how long it may be."""
MOST_CLIENTS = 10_000
"""Clients known by token that have a bucket; of more, the one not seen for longest loses its."""
COUNTED_BODY_BYTES = 16 * 1024 * 1024
"""Longest body while tokens are limited: Envoy holds it whole to count them."""
KEY_HEADERS = ("authorization", "x-api-key")
CLIENT = {"header_name": labels.CLIENT_HEADER, "descriptor_key": "client"}
"""Describes a request by its client."""
CHARGED = {"format": f"%REQ({COST_HEADER})%"}
"""What a request takes out of the bucket of tokens."""

TOKEN_RETRY_SECONDS = 5
"""Envoy does not say how long a request's tokens take to gather: this is a guess."""

_TYPE = "type.googleapis.com/"
_AUTH = _TYPE + "envoy.extensions.filters.http.api_key_auth.v3."
_LIMIT = _TYPE + "envoy.extensions.filters.http.local_ratelimit.v3.LocalRateLimit"
_LUA = _TYPE + "envoy.extensions.filters.http.lua.v3."
_RBAC = _TYPE + "envoy.extensions.filters.http.rbac.v3."
_BODY = _TYPE + "envoy.extensions.filters.http.buffer.v3."
NO_POLICIES: dict[str, Any] = {"typed_per_filter_config": {API_KEYS: OFF}}
"""Of a virtual host that reaches no worker: nobody is asked for a key to be told so."""
_COST_SCRIPT = f"""
local NAMES = {{'"max_tokens"', '"max_completion_tokens"', '"max_output_tokens"'}}
-- Of a name given twice the larger counts; text inside a prompt has its quotes escaped.
local function largest(text, quoted)
  local found, from = 0, 1
  while true do
    -- A plain search over the prompt costs a tenth of a pattern's.
    local start, stop = text:find(quoted, from, true)
    if not start then return found end
    from = stop + 1
    local number = text:match('^%s*:%s*"?([%d.eE+-]+)', from)
    found = math.max(found, tonumber(number) or 0)
  end
end
function envoy_on_request(handle)
  -- Should this script ever fail, the request is one too many.
  handle:headers():replace("{COST_HEADER}", "1000000000")
  local body = handle:body()
  -- A bucket asked for nothing says no.
  local cost = 1
  if body then
    local text = body:getBytes(0, body:length())
    local answer = 0
    for _, name in ipairs(NAMES) do answer = math.max(answer, largest(text, name)) end
    if answer == 0 then answer = {UNSAID_TOKENS} end
    cost = math.ceil(#text / 4) + math.ceil(answer) * math.max(1, math.ceil(largest(text, '"n"')))
  end
  handle:headers():replace("{COST_HEADER}", string.format("%d", math.min(cost, 1e9)))
end
"""


CHARGING: dict[str, Any] = {
    "@type": _LUA + "LuaPerRoute",
    "source_code": {"inline_string": _COST_SCRIPT},
}
"""Settings of a route whose requests are charged."""


def filters(folder: PurePath) -> list[dict[str, Any]]:
    """The listener's filters before the router: without a word from the route, nobody gets in.

    Those that let everybody pass until a route has settings for them are disabled: then a
    request costs nothing there.
    """
    return [
        # First: who may not come in need not be asked who they are.
        {"name": ADDRESSES, "disabled": True, "typed_config": {"@type": _RBAC + "RBAC"}},
        {
            "name": API_KEYS,
            "typed_config": {"@type": _AUTH + "ApiKeyAuth", **_sources()},
        },
        tokens_filter(folder),
        {
            "name": REQUEST_LIMIT,
            "disabled": True,
            "typed_config": {"@type": _LIMIT, "stat_prefix": "requests"},
        },
        answers_filter(),
        {
            # Holds bodies, so after the key was seen. The filter that only counts knows no
            # settings of a route (measured).
            "name": BODY_LIMIT,
            "disabled": True,
            "typed_config": {"@type": _BODY + "Buffer", "max_request_bytes": COUNTED_BODY_BYTES},
        },
        {
            "name": COST,
            "disabled": True,
            # Its header must not have the route chosen anew, after the key was seen.
            "typed_config": {"@type": _LUA + "Lua", "clear_route_cache": False},
        },
        {
            "name": CHARGE_LIMIT,
            "disabled": True,
            "typed_config": {"@type": _LIMIT, "stat_prefix": "tokens"},
        },
    ]


def policies(
    route: gateway.Route | gateway.Access, keys: Keys, requirement: str = REQUIREMENT
) -> dict[str, Any]:
    """Fields of the virtual host, or of an entry that has its own.

    Args:
        requirement: what is asked of tokens, by its name.

    Raises:
        RouteRefused: one of the addresses is not a range.
    """
    found: dict[str, Any] = {"typed_per_filter_config": {}}
    if route.auth is not None:
        found = _guarded(route, keys)
    configured = found["typed_per_filter_config"]
    jwt = route.auth.jwt if route.auth else None
    configured[TOKENS] = asked_of(jwt, requirement)
    if route.auth is None or jwt is not None:
        configured[API_KEYS] = OFF
    if route.allowed_cidrs:
        configured[ADDRESSES] = _only_from(route.allowed_cidrs)
    most = route.max_request_body_bytes
    if most is not None:
        most = min(most, found.get("request_body_buffer_limit", most))
        configured[BODY_LIMIT] = {
            "@type": _BODY + "BufferPerRoute",
            "buffer": {"max_request_bytes": most},
        }
    return found


def _only_from(cidrs: Sequence[str]) -> dict[str, Any]:
    """Addresses as the listener sees them, past the proxies that it trusts.

    Raises:
        RouteRefused: one is not an address range.
    """
    principals = []
    for cidr in cidrs:
        try:
            network = ipaddress.ip_network(cidr)
        except ValueError as error:
            raise RouteRefused(f"allowedCidrs: {error}") from None
        address = {
            "address_prefix": str(network.network_address),
            "prefix_len": network.prefixlen,
        }
        principals.append({"remote_ip": address})
    allowed = {"permissions": [{"any": True}], "principals": principals}
    return {
        "@type": _RBAC + "RBACPerRoute",
        "rbac": {"rules": {"action": "ALLOW", "policies": {"allowed": allowed}}},
    }


def _guarded(route: gateway.Route | gateway.Access, keys: Keys) -> dict[str, Any]:
    """Keys, and what each may ask for."""
    credentials = [{"key": key, "client": client} for client, key in sorted(keys.by_client.items())]
    configured: dict[str, Any] = {
        API_KEYS: {
            "@type": _AUTH + "ApiKeyAuthPerRoute",
            "credentials": credentials,
            # A route's settings replace the filter's: what is not repeated is lost.
            **_sources(),
        }
    }
    clients = clients_of(route, keys)
    found: dict[str, Any] = {
        "typed_per_filter_config": configured,
        # Envoy hides the key it used; a second one must not reach a worker either.
        "request_headers_to_remove": [*KEY_HEADERS, COST_HEADER],
    }
    if route.rate_limit is None or clients == []:
        return found
    if (requests := route.rate_limit.requests_per_minute_per_key) is not None:
        configured[REQUEST_LIMIT] = _limit("requests", requests, clients, retry_seconds(requests))
    if (at_once := route.rate_limit.concurrent_requests_per_key) is not None:
        configured[ANSWERS] = at_most(at_once)
    if (tokens := route.rate_limit.tokens_per_minute_per_key) is not None:
        configured[COST] = CHARGING
        charged = _limit("tokens", tokens, clients, TOKEN_RETRY_SECONDS)
        charged["rate_limits"][0]["hits_addend"] = CHARGED
        configured[CHARGE_LIMIT] = charged
        found["request_body_buffer_limit"] = COUNTED_BODY_BYTES
    return found


def clients_of(route: gateway.Route | gateway.Access, keys: Keys) -> list[str] | None:
    """Who can have a bucket; None: the names in tokens are not known beforehand, and each gets its
    bucket when it comes.
    """
    return None if route.auth and route.auth.jwt else sorted(keys.by_client)


def retry_seconds(requests_per_minute: int) -> int:
    """When there is one request in the bucket again."""
    return -(-60 // requests_per_minute)


def _limit(
    name: str, per_minute: int, clients: list[str] | None, retry_after_seconds: int
) -> dict[str, Any]:
    """A bucket for each client."""
    filled = bucket(per_minute)
    named: list[dict[str, str]] = [{}] if clients is None else [{"value": x} for x in clients]
    return limit(
        name,
        actions=[{"request_headers": CLIENT}],
        descriptors=[
            {"entries": [{"key": "client", **each}], "token_bucket": filled} for each in named
        ],
        otherwise=filled,
        retry_after=str(retry_after_seconds),
        **({"max_dynamic_descriptors": MOST_CLIENTS} if clients is None else {}),
    )


def bucket(per_minute: int) -> dict[str, Any]:
    """It fills evenly and holds what a minute allows."""
    return {"max_tokens": per_minute, "tokens_per_fill": per_minute, "fill_interval": "60s"}


def limit(
    name: str,
    *,
    actions: list[dict[str, Any]],
    descriptors: list[dict[str, Any]],
    otherwise: Mapping[str, Any],
    retry_after: str,
    **more: Any,
) -> dict[str, Any]:
    """A limit's settings.

    Args:
        actions: what a request is described by.
        descriptors: which description has which bucket.
        otherwise: Envoy wants a bucket for requests of none.
        retry_after: as Envoy formats it.
    """
    always = {"numerator": 100, "denominator": "HUNDRED"}
    return {
        "@type": _LIMIT,
        "stat_prefix": name,
        # Both are 0 percent by default.
        "filter_enabled": {"default_value": always, "runtime_key": "limit.enabled"},
        "filter_enforced": {"default_value": always, "runtime_key": "limit.enforced"},
        "token_bucket": otherwise,
        "always_consume_default_token_bucket": False,
        "rate_limits": [{"actions": actions}],
        "descriptors": descriptors,
        **more,
        "response_headers_to_add": [
            {
                "header": {"key": "retry-after", "value": retry_after},
                "append_action": "OVERWRITE_IF_EXISTS_OR_ADD",
            }
        ],
    }


def _sources() -> dict[str, Any]:
    return {
        "key_sources": [{"header": header} for header in KEY_HEADERS],
        "forwarding": {"header": labels.CLIENT_HEADER, "hide_credentials": True},
    }
