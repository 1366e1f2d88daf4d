"""Pure: what kind of answer a request asks for, read in Lua while its body passes by.

Out: the dynamic metadata that `logs` counts by. An engine may fail one kind and
serve all others; nothing is held back for knowing it. Text inside a prompt has
its quotes escaped and is never taken for a field. Called by `concurrency`, whose
filter runs it.
"""

from speculative_api.gateway import STRUCTURED, TOOLS

KIND = "speculative.kind"
"""Name of the dynamic metadata: `asked`."""
LONGEST = 128
"""Bytes of a field's name and the beginning of its value that are looked at."""

CLASSIFY = f"""
-- Names of fields by their first two letters; of the fields of `formats` and `calls`, how a
-- value begins that asks for something.
local FORMATS, CALLS = {{}}, {{}}
local function field(kind, name, value)
  kind[name:byte(2) * 256 + name:byte(3)] = {{name, value}}
end
field(FORMATS, '"response_format"', "^[^n]")
field(FORMATS, '"structured_outputs"', "^[^n]")
-- Older engines: guided_json, guided_regex, guided_choice, guided_grammar.
field(FORMATS, '"guided_', "^[^n]")
-- Of the responses API; in a schema the same name has a text.
field(FORMATS, '"format"', "^{{")
field(CALLS, '"tools"', "^%[%s*[^%s%]]")
field(CALLS, '"functions"', "^%[%s*[^%s%]]")
local function asks(text, at, known)
  local name = known[1]
  if text:sub(at, at + #name - 1) ~= name then return false end
  local from = at + #name
  local value = text:sub(from, from + {LONGEST}):match('^[%w_]*"?%s*:%s*(.*)')
  return value and value:find(known[2]) and not value:find('^{{%s*"type"%s*:%s*"text"')
end
-- Returns whether a format is asked for, and whether a tool is offered. One walk over all quotes:
-- a search for each name stops at each of them too.
local function asked_for(text, whole)
  local last, from, calls = whole and #text or #text - {LONGEST}, 1, false
  while true do
    local at = text:find('"', from, true)
    -- Too near the end it is looked at again with what comes next.
    if not at or at > last then return false, calls end
    from = at + 1
    local first, second = text:byte(from, from + 1)
    local letters = (first or 0) * 256 + (second or 0)
    local known = FORMATS[letters]
    if known and asks(text, at, known) then return true, calls end
    known = CALLS[letters]
    if known and not calls and asks(text, at, known) then calls = true end
  end
end
local function classify(handle)
  local media = handle:headers():get("content-type")
  if media and not media:find("json", 1, true) then return end
  local kept, calls, formats = "", false, false
  local function look(whole)
    local more
    formats, more = asked_for(kept, whole)
    calls = calls or more
  end
  for chunk in handle:bodyChunks() do
    kept = kept .. chunk:getBytes(0, chunk:length())
    look(false)
    if formats then break end
    kept = kept:sub(-{LONGEST})
  end
  if not formats then look(true) end
  local asked = formats and "{STRUCTURED}" or calls and "{TOOLS}"
  if asked then handle:streamInfo():dynamicMetadata():set("{KIND}", "asked", asked) end
end
"""
"""Lua: `classify(handle)` reads a request to its end, or as far as it has to."""
