local output_path, build, triple, cpu = ...
assert(output_path and build and triple and cpu,
       "usage: terra lower.t OUTPUT BUILD TRIPLE CPU")
assert(build == "release" or build == "debug",
       "BUILD is release or debug, not " .. build)

GLM_BUILD = build
GLM_INCLUDE_FLAGS = {"-I", "native/include"}
GLM_TARGET = terralib.newtarget {Triple = triple, CPU = cpu, Features = ""}

package.terrapath = "terra/?.t;" .. package.terrapath

local function sorted_names(functions)
  local names = terralib.newlist()
  for name in pairs(functions) do
    names:insert(name)
  end
  table.sort(names)
  return names
end

local engine = require "engine"
assert(type(engine) == "table" and type(engine.exports) == "table",
       "terra/engine.t must return {exports = {name = terra function}}")

local unit = terralib.newcompilationunit(GLM_TARGET, false, {})
for _, name in ipairs(sorted_names(engine.exports)) do
  local exported = engine.exports[name]
  assert(terralib.isfunction(exported), "terra/engine.t: export " .. name .. " is no Terra function")
  unit:addvalue(name, exported)
end
unit:saveobj(output_path, "llvmir", {}, build == "release")
unit:free()
