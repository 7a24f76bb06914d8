local abi = require("terra.base.abi")
local C = abi.C

local check = {}

check.is_debug = rawget(_G, "GLM_BUILD") == "debug"

terra check.fail(file : rawstring, line : int32, text : rawstring)
  C.fprintf(C.fdopen(2, "w"), "%s:%d: invariant violated: %s\n", file, line, text)
  C.abort()
end

local function source_name(tree)
  return tostring(tree.filename):match("([^/]+)$")
end

check.invariant = macro(function(condition, text)
  if not check.is_debug then
    return quote end
  end
  local file, line = source_name(condition.tree), condition.tree.linenumber
  return quote
    if not condition then
      check.fail(file, line, text)
    end
  end
end)

check.bounds = macro(function(index, count)
  if not check.is_debug then
    return quote end
  end
  local file, line = source_name(index.tree), index.tree.linenumber
  return quote
    if [int64](index) < 0 or [int64](index) >= [int64](count) then
      check.fail(file, line, "index out of bounds")
    end
  end
end)

return check
