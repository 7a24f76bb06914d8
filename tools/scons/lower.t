local output_path, build, triple = ...
assert(triple, "usage: terra tools/scons/lower.t OUTPUT BUILD TRIPLE")
assert(build == "release" or build == "debug",
       "BUILD is release or debug, not " .. build)

GLM_BUILD = build

local target = require("terra.base.abi").target
local engine = require("terra.api.exports")

local function check_target()
  assert(target.Triple == triple,
         ("terra/base/abi.t: the target is %s, the build wants %s")
           :format(tostring(target.Triple), triple))
end

local function add_functions(functions, into)
  for name, value in pairs(functions or {}) do
    assert(terralib.isfunction(value),
           "terra/api/exports.t: " .. name .. " is no Terra function")
    assert(not into[name], "terra/api/exports.t: " .. name .. " stands there twice")
    into[name] = value
  end
end

local function sorted_names(functions)
  local names = {}
  for name in pairs(functions) do
    names[#names + 1] = name
  end
  table.sort(names)
  return names
end

local function lowered_functions()
  assert(type(engine) == "table" and type(engine.exports) == "table",
         "terra/api/exports.t must return {exports = {name = function}, probes = {name = function}}")
  local functions = {}
  add_functions(engine.exports, functions)
  if build == "debug" then
    add_functions(engine.probes, functions)
  end
  return functions
end

local function hide_globals()
  local file = assert(io.open(output_path))
  local text = file:read("*a"):gsub('\n(@"<global>[^"]*" = )dso_local ', "\n%1internal ")
  file:close()
  file = assert(io.open(output_path, "w"))
  file:write(text)
  file:close()
end

local function save(functions)
  local unit = terralib.newcompilationunit(target, false, {})
  for _, name in ipairs(sorted_names(functions)) do
    unit:addvalue(name, functions[name])
  end
  unit:saveobj(output_path, "llvmir", {}, build == "release")
  unit:free()
end

check_target()
save(lowered_functions())
hide_globals()
