"""Pure: how many requests a client may have in flight, as Envoy's filter.

Envoy has no such limit by client. This one counts in Lua, whose state is one
per worker thread: the operator gives such a gateway one thread. The script is
the listener's, so its counts outlive a rewritten route; the limit is the
route's. A client that leaves ends no script: its ticket hangs on the request's
coroutine, which Envoy drops with the request, and the collector finds it.
"""

from typing import Any

from speculative_api import labels

CONCURRENCY = "speculative.concurrency"
"""Name of the filter, its script and its dynamic metadata."""
RETRY_SECONDS = 1
"""When one of the client's requests ends nobody knows."""

_LUA = "type.googleapis.com/envoy.extensions.filters.http.lua.v3."
_SCRIPT = f"""
local running = {{}}
local clients = {{}}
local guards = setmetatable({{}}, {{__mode = "k"}})
local last = 0
local function finish(ticket)
  local client = clients[ticket]
  if client == nil then return end
  clients[ticket] = nil
  local left = running[client] - 1
  running[client] = left > 0 and left or nil
end
function envoy_on_request(handle)
  local most = handle:filterContext():get("most")
  -- Tokens without a name share one.
  local client = handle:headers():get("{labels.CLIENT_HEADER}") or ""
  if most == nil then return end
  if (running[client] or 0) >= most then
    -- A guard is held by its table until the coroutine is gone: the second round finds it.
    collectgarbage()
    collectgarbage()
  end
  if (running[client] or 0) >= most then
    handle:respond(
      {{[":status"] = "429", ["retry-after"] = "{RETRY_SECONDS}"}}, "too many requests at a time")
    return
  end
  last = last + 1
  local ticket = last
  clients[ticket] = client
  running[client] = (running[client] or 0) + 1
  local guard = newproxy(true)
  getmetatable(guard).__gc = function() finish(ticket) end
  guards[coroutine.running()] = guard
  handle:streamInfo():dynamicMetadata():set("{CONCURRENCY}", "ticket", ticket)
end
function envoy_on_response(handle)
  local found = handle:streamInfo():dynamicMetadata():get("{CONCURRENCY}")
  if found == nil then return end
  local ticket = found["ticket"]
  for _ in handle:bodyChunks() do end
  finish(ticket)
end
"""


def concurrency_filter() -> dict[str, Any]:
    """The listener's filter; it does nothing until a route says how many."""
    scripts = {CONCURRENCY: {"inline_string": _SCRIPT}}
    return {
        "name": CONCURRENCY,
        "typed_config": {"@type": _LUA + "Lua", "source_codes": scripts},
    }


def at_most(requests: int) -> dict[str, Any]:
    """The filter's settings of a route."""
    return {
        "@type": _LUA + "LuaPerRoute",
        "name": CONCURRENCY,
        "filter_context": {"most": requests},
    }
