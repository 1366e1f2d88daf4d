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
-- Names of fields, and how a value begins that asks for something.
local FORMATS = {{
  {{'"response_format"', "^[^n]"}},
  {{'"structured_outputs"', "^[^n]"}},
  -- Older engines: guided_json, guided_regex, guided_choice, guided_grammar.
  {{'"guided_', "^[^n]"}},
  -- Of the responses API; in a schema the same name has a text.
  {{'"format"', "^{{"}},
}}
local CALLS = {{{{'"tools"', "^%[%s*[^%s%]]"}}, {{'"functions"', "^%[%s*[^%s%]]"}}}}
local function names_one(text, fields, whole)
  for _, field in ipairs(fields) do
    local from = 1
    while true do
      local start, stop = text:find(field[1], from, true)
      if not start then break end
      from = stop + 1
      -- Too near the end it is looked at again with what comes next.
      if not whole and #text - start < {LONGEST} then break end
      local value = text:sub(from, from + {LONGEST}):match('^[%w_]*"?%s*:%s*(.*)')
      if value and value:find(field[2]) and not value:find('^{{%s*"type"%s*:%s*"text"') then
        return true
      end
    end
  end
  return false
end
local function classify(handle)
  local media = handle:headers():get("content-type")
  if media and not media:find("json", 1, true) then return end
  local kept, calls, formats = "", false, false
  local function look(whole)
    formats = names_one(kept, FORMATS, whole)
    calls = calls or names_one(kept, CALLS, whole)
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
