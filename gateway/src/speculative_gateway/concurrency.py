"""Pure: what Envoy does with every request in Lua, as one filter, and how much a client may have
in flight.

Envoy has no such limit by client. This one counts in Lua, whose state is one
per worker thread: the operator gives such a gateway one thread. The script is
the listener's, so its counts outlive a rewritten route; the limit is the
route's. A client that leaves ends no script: a ticket is good while the request's
coroutine is there, which Envoy drops with the request. Only the collector knows of
that, and is asked when a client seems to have too many. A finalizer for each request
would know it sooner and cost every request something.

Tokens are counted and kinds of requests told apart by the same filter, since
each event of a stream that passes through one more of them costs about 2
microseconds (measured, Envoy 1.40).
"""

from typing import Any

from speculative_api import labels

from .kinds import CLASSIFY
from .usage import COUNT

ANSWERS = "speculative.answers"
"""Name of the filter."""
CONCURRENCY = "speculative.concurrency"
"""Name of the script of routes with a limit, and of its dynamic metadata."""
SWEEP_REQUESTS = 1024
"""After so many, tickets of clients who left without a word are looked for."""
RETRY_SECONDS = 1
"""When one of the client's requests ends nobody knows."""

_LUA = "type.googleapis.com/envoy.extensions.filters.http.lua.v3."
_UNLIMITED = f"""
{CLASSIFY}
{COUNT}
function envoy_on_request(handle) classify(handle) end
function envoy_on_response(handle) count(handle) end
"""
_LIMITED = f"""
{CLASSIFY}
{COUNT}
local running = {{}}
local clients = {{}}
-- A dead coroutine is no value here, and so says that nobody waits for its request any more.
local requests = setmetatable({{}}, {{__mode = "v"}})
local last = 0
local function finish(ticket)
  local client = clients[ticket]
  if client == nil then return end
  clients[ticket], requests[ticket] = nil, nil
  local left = running[client] - 1
  running[client] = left > 0 and left or nil
end
local function finish_those_left()
  for ticket in pairs(clients) do
    if requests[ticket] == nil then finish(ticket) end
  end
end
function envoy_on_request(handle)
  local context = handle:filterContext()
  local most = context:get("most")
  -- Tokens without a name share one.
  local client = context:get("whose") .. (handle:headers():get("{labels.CLIENT_HEADER}") or "")
  if (running[client] or 0) >= most then
    collectgarbage()
    finish_those_left()
  end
  if (running[client] or 0) >= most then
    handle:respond(
      {{[":status"] = "429", ["retry-after"] = "{RETRY_SECONDS}"}}, "too many requests at a time")
    return
  end
  last = last + 1
  -- Clients who left and never come again are forgotten too.
  if last % {SWEEP_REQUESTS} == 0 then finish_those_left() end
  clients[last], requests[last] = client, coroutine.running()
  running[client] = (running[client] or 0) + 1
  handle:streamInfo():dynamicMetadata():set("{CONCURRENCY}", "ticket", last)
  classify(handle)
end
function envoy_on_response(handle)
  local found = handle:streamInfo():dynamicMetadata():get("{CONCURRENCY}")
  local ticket = found and found["ticket"]
  if not count(handle) then
    for _ in handle:bodyChunks() do end
  end
  if ticket then finish(ticket) end
end
"""


def answers_filter() -> dict[str, Any]:
    """The listener's filter: it counts tokens; a route may have it limit clients as well."""
    return {
        "name": ANSWERS,
        "typed_config": {
            "@type": _LUA + "Lua",
            "default_source_code": {"inline_string": _UNLIMITED},
            "source_codes": {CONCURRENCY: {"inline_string": _LIMITED}},
        },
    }


def at_most(requests: int, whose: str = "") -> dict[str, Any]:
    """The filter's settings of a route.

    Args:
        whose: keeps clients of one name apart that are not one client.
    """
    return {
        "@type": _LUA + "LuaPerRoute",
        "name": CONCURRENCY,
        "filter_context": {"most": requests, "whose": f"{whose}/"},
    }
