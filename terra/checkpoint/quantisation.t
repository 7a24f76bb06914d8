local abi = require("terra.base.abi")
local containers = require("terra.base.containers")
local json = require("terra.base.json")
local reader = require("terra.checkpoint.config_reader")
local regex = require("terra.base.regex")
local status = require("terra.base.status")
local text = require("terra.base.text")
local C = abi.C
local ConfigReader = reader.ConfigReader
local Slice = text.Slice

local quantisation = { key = "quantization_config", pattern_prefix = "re:" }

local struct NameMatcher {
  exact : text.Map(bool)
  patterns : containers.Vector(regex.Regex)
}
quantisation.NameMatcher = NameMatcher

terra NameMatcher:init()
  self.exact:init()
  self.patterns:init()
end

terra NameMatcher:free()
  for i = 0, self.patterns.size do
    self.patterns:at(i):free()
  end
  self.patterns:free()
  self.exact:free()
end

local terra out_of_memory(from : &ConfigReader) : int32
  return status.fail(from.message, C.GLM_OUT_OF_MEMORY, "%s: out of memory", from.path)
end

terra NameMatcher:add_pattern(pattern : Slice, key : rawstring, from : &ConfigReader) : int32
  var cause : C.glm_message
  cause.text[0] = 0
  var compiled : regex.Regex
  var code = compiled:compile(pattern, &cause)
  if code ~= C.GLM_OK then
    return status.fail(from.message, code, "%s: %s.%s: %s", from.path, [quantisation.key], key, &cause.text[0])
  end
  if not self.patterns:push(compiled) then
    compiled:free()
    return out_of_memory(from)
  end
  return C.GLM_OK
end

terra NameMatcher:add(value : Slice, arena : &text.Arena, key : rawstring, from : &ConfigReader) : int32
  var prefix = text.slice([quantisation.pattern_prefix])
  if value.size >= prefix.size and text.equal(Slice { data = value.data, size = prefix.size }, prefix) then
    return self:add_pattern(Slice { data = value.data + prefix.size, size = value.size - prefix.size }, key, from)
  end
  var copy = arena:copy(value)
  if copy == nil or not self.exact:insert(Slice { data = [&uint8](copy), size = value.size }, true) then
    return out_of_memory(from)
  end
  return C.GLM_OK
end

terra NameMatcher:read(list : &json.Node, arena : &text.Arena, key : rawstring, from : &ConfigReader) : int32
  if list.kind ~= json.array_kind then
    return from:wrong_kind(key, "a list of names", list)
  end
  var child = from.document:child(list)
  while child ~= nil do
    if child.kind ~= json.string_kind then
      return from:wrong_kind(key, "a list of names", child)
    end
    status.try(self:add(child.string, arena, key, from))
    child = from.document:next(child)
  end
  return C.GLM_OK
end

terra NameMatcher:matches(name : Slice) : bool
  if self.exact:find(name) ~= nil then
    return true
  end
  for i = 0, self.patterns.size do
    if self.patterns:at(i):matches(name) then
      return true
    end
  end
  return false
end

local struct Quantisation {
  is_present : bool
  covers_all_linears : bool
  ignore : NameMatcher
  targets : NameMatcher
  arena : text.Arena
}
quantisation.Quantisation = Quantisation

terra Quantisation:init()
  self.is_present = false
  self.covers_all_linears = false
  self.ignore:init()
  self.targets:init()
  self.arena:init()
end

terra Quantisation:free()
  self.ignore:free()
  self.targets:free()
  self.arena:free()
end

local schemes = {
  { key = "weights", strategy = "channel", dynamic = false },
  { key = "input_activations", strategy = "token", dynamic = true },
}

local terra check_group(from : &ConfigReader) : int32
  escape
    for _, scheme in ipairs(schemes) do
      emit quote
        var node = from:find([scheme.key])
        if node == nil then
          return from:missing(["quantization_config.config_groups " .. scheme.key])
        end
        var inside = from:inside(node)
        status.try(inside:expect_string("type", "float"))
        status.try(inside:expect_integer("num_bits", 8))
        status.try(inside:expect_string("strategy", [scheme.strategy]))
        status.try(inside:expect_flag("symmetric", true))
        status.try(inside:expect_flag("dynamic", [scheme.dynamic]))
      end
    end
  end
  return from:expect_absent("output_activations")
end

terra Quantisation:read_targets(from : &ConfigReader) : int32
  var targets = from:find("targets")
  if targets == nil then
    return from:missing("quantization_config.config_groups targets")
  end
  status.try(self.targets:read(targets, &self.arena, "targets", from))
  self.covers_all_linears = self.targets.exact:find(text.slice("Linear")) ~= nil
  return C.GLM_OK
end

terra Quantisation:read_groups(from : &ConfigReader) : int32
  var groups = from:find("config_groups")
  if groups == nil then
    return from:missing("quantization_config.config_groups")
  end
  var group = from.document:child(groups)
  if groups.kind ~= json.object_kind or group == nil then
    return from:wrong_kind("quantization_config.config_groups", "an object with a group", groups)
  end
  while group ~= nil do
    var inside = from:inside(group)
    status.try(check_group(&inside))
    status.try(self:read_targets(&inside))
    group = from.document:next(group)
  end
  return C.GLM_OK
end

local terra check_cache_scheme(from : &ConfigReader) : int32
  var node = from:find("kv_cache_scheme")
  if node == nil then
    return C.GLM_OK
  end
  if node.kind ~= json.object_kind then
    return from:wrong_kind("kv_cache_scheme", "an object", node)
  end
  var inside = from:inside(node)
  status.try(inside:expect_string("type", "float"))
  status.try(inside:expect_integer("num_bits", 8))
  status.try(inside:expect_flag("symmetric", true))
  return inside:expect_flag("dynamic", false)
end

terra Quantisation:read(from : &ConfigReader) : int32
  var node = from:find([quantisation.key])
  if node == nil then
    return C.GLM_OK
  end
  if node.kind ~= json.object_kind then
    return from:wrong_kind([quantisation.key], "an object", node)
  end
  self.is_present = true
  var inside = from:inside(node)
  status.try(inside:expect_string("quant_method", "compressed-tensors"))
  status.try(inside:expect_string("format", "float-quantized"))
  status.try(check_cache_scheme(&inside))
  status.try(self:read_groups(&inside))
  var ignore = inside:find("ignore")
  if ignore ~= nil then
    return self.ignore:read(ignore, &self.arena, "ignore", &inside)
  end
  return C.GLM_OK
end

terra Quantisation:covers(linear : rawstring) : bool
  if not self.is_present then
    return false
  end
  var name = text.slice(linear)
  return (self.covers_all_linears or self.targets:matches(name)) and not self.ignore:matches(name)
end

return quantisation
