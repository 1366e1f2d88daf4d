"""Pure: counts tokens in answers that pass by, as Envoy's filter; nothing is held back.

Out: the dynamic metadata that `logs` shows. A worker says what it used in a
JSON object `usage`, in the answer or, if the client asked for it, in an event
of the stream; text inside an answer has its quotes escaped and is never taken
for it. Streams are counted in events as well, for where nothing is said.
"""

from typing import Any

USAGE = "speculative.usage"
"""Name of the filter and of its dynamic metadata: prompt, completion, events."""

_TYPE = "type.googleapis.com/envoy.extensions.filters.http.lua.v3.Lua"
_SCRIPT = f"""
-- Longer than one `usage` object may be.
local KEPT = 512
local PROMPT = {{"prompt_tokens", "input_tokens"}}
local COMPLETION = {{"completion_tokens", "output_tokens"}}
local function first(text, names)
  for _, name in ipairs(names) do
    local found = text:match('"' .. name .. '"%s*:%s*(%d+)')
    if found then return tonumber(found) end
  end
end
-- What Envoy hands out is dead after the next chunk, so it is asked for each time.
local function say(handle, name, number)
  handle:streamInfo():dynamicMetadata():set("{USAGE}", name, number)
end
function envoy_on_response(handle)
  local kind = handle:headers():get("content-type") or ""
  local streamed = kind:find("text/event-stream", 1, true) ~= nil
  if not streamed and not kind:find("application/json", 1, true) then return end
  local kept, events, said = "", 0, 0
  for chunk in handle:bodyChunks() do
    local text = chunk:getBytes(0, chunk:length())
    if streamed then
      -- An event ends with an empty line, which may come in two pieces.
      local seen = kept:sub(-1) .. text
      local from = 1
      while true do
        local start, stop = seen:find("\\n\\n", from, true)
        if not start then break end
        events, from = events + 1, stop + 1
      end
      -- Now and then, so that of a stream that breaks off nearly all is known.
      if events >= said + 16 then
        said = events
        say(handle, "events", events)
      end
    end
    kept = (kept .. text):sub(-math.max(KEPT, #text))
    -- The last one counts: some engines say it with every event.
    local at, from = nil, 1
    while true do
      local start, stop = kept:find('"usage"', from, true)
      if not start then break end
      at, from = stop, stop + 1
    end
    if at then
      local object = kept:sub(at + 1, at + KEPT)
      local prompt, completion = first(object, PROMPT), first(object, COMPLETION)
      if prompt then say(handle, "prompt", prompt) end
      if completion then say(handle, "completion", completion) end
    end
    kept = kept:sub(-KEPT)
  end
  if streamed then say(handle, "events", events) end
end
"""


def usage_filter() -> dict[str, Any]:
    """The filter; it has no settings of a route."""
    return {
        "name": USAGE,
        "typed_config": {"@type": _TYPE, "default_source_code": {"inline_string": _SCRIPT}},
    }
