"""Pure: counts tokens in answers that pass by, in Lua; nothing is held back.

Out: the dynamic metadata that `logs` shows. A worker says what it used in a
JSON object `usage`, in the answer or, if the client asked for it, in an event
of the stream; text inside an answer has its quotes escaped and is never taken
for it. Streams are counted in events as well, for where nothing is said.
Called by `concurrency`, whose filter runs it.
"""

USAGE = "speculative.usage"
"""Name of the dynamic metadata: prompt, completion, events."""

COUNT = f"""
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
-- Returns false, and has read nothing, where the answer is of another kind.
local function count(handle)
  local kind = handle:headers():get("content-type") or ""
  local streamed = kind:find("text/event-stream", 1, true) ~= nil
  if not streamed and not kind:find("application/json", 1, true) then return false end
  -- The end of what came before, where it may hold the beginning of what is looked for.
  local kept, events, said, broken = "", 0, 0, false
  for chunk in handle:bodyChunks() do
    local text = chunk:getBytes(0, chunk:length())
    if streamed and #text > 0 then
      -- An event ends with an empty line, which may come in two pieces.
      local from = 1
      if broken and text:byte(1) == 10 then events, from = events + 1, 2 end
      while true do
        local start, stop = text:find("\\n\\n", from, true)
        if not start then break end
        events, from = events + 1, stop + 1
      end
      broken = from <= #text and text:byte(-1) == 10
      -- Now and then, so that of a stream that breaks off nearly all is known.
      if events >= said + 16 then
        said = events
        say(handle, "events", events)
      end
    end
    if kept ~= "" then text = kept .. text end
    -- The last one counts: some engines say it with every event.
    local at, from = nil, 1
    while true do
      local start, stop = text:find('"usage"', from, true)
      if not start then break end
      at, from = stop, stop + 1
    end
    if at then
      local object = text:sub(at + 1, at + KEPT)
      local prompt, completion = first(object, PROMPT), first(object, COMPLETION)
      if prompt then say(handle, "prompt", prompt) end
      if completion then say(handle, "completion", completion) end
    end
    -- Events that come whole, as nearly all do, are not joined with the next.
    kept = streamed and text:byte(-1) == 10 and "" or text:sub(-KEPT)
  end
  if streamed and events > said then say(handle, "events", events) end
  return true
end
"""
"""Lua: `count(handle)` reads an answer to its end."""
