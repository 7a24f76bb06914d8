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

local quantisation = {
  key = "quantization_config",
  format = "float-quantized",
  side_file_name = "hf_quant_config.json",
  pattern_prefix = "re:",
}

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
    return status.fail(from.message, code, "%s: %s%s: %s", from.path, &from.prefix[0], key, &cause.text[0])
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

terra NameMatcher:names_linears() : bool
  return self.exact:find(text.slice("Linear")) ~= nil
end

local struct Quantisation {
  is_present : bool
  covers_all_linears : bool
  ignores_all_linears : bool
  ignore : NameMatcher
  targets : NameMatcher
  arena : text.Arena
}
quantisation.Quantisation = Quantisation

terra Quantisation:init()
  self.is_present = false
  self.covers_all_linears = false
  self.ignores_all_linears = false
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
  { key = "weights", strategies = { "channel" }, dynamic = false },
  { key = "input_activations", strategies = { "token" }, dynamic = true },
}
local cache_scheme = { key = "kv_cache_scheme", strategies = { "tensor", "attn_head" }, dynamic = false }
local parts_of_a_scheme = { "actorder", "block_structure", "group_size" }

local terra is_one_of(node : &json.Node, first : rawstring, second : rawstring) : bool
  return node.kind == json.string_kind and (text.equals(node.string, first) or text.equals(node.string, second))
end

local terra expect_either(from : &ConfigReader, key : rawstring, first : rawstring, second : rawstring) : int32
  var node = from:find(key)
  if node == nil or is_one_of(node, first, second) then
    return C.GLM_OK
  end
  var supported : int8[64]
  C.snprintf(&supported[0], 64, "\"%s\" or \"%s\"", first, second)
  return from:refuse(key, node, &supported[0])
end

local function scheme_check(scheme)
  return terra(from : &ConfigReader) : int32
    status.try(from:expect_string("type", "float"))
    status.try(from:expect_integer("num_bits", 8))
    escape
      local first, second = unpack(scheme.strategies)
      if second then
        emit quote status.try(expect_either(from, "strategy", first, second)) end
      else
        emit quote status.try(from:expect_string("strategy", first)) end
      end
      for _, part in ipairs(parts_of_a_scheme) do
        emit quote status.try(from:expect_absent(part)) end
      end
    end
    status.try(from:expect_flag("symmetric", true))
    return from:expect_flag("dynamic", [scheme.dynamic])
  end
end

local terra check_group(from : &ConfigReader) : int32
  if from:find("format") ~= nil then
    status.try(from:expect_string("format", [quantisation.format]))
  end
  escape
    for _, scheme in ipairs(schemes) do
      emit quote
        if from:find([scheme.key]) == nil then
          return from:missing([scheme.key])
        end
        var inside : ConfigReader
        status.try(from:object_of([scheme.key], &inside))
        status.try([scheme_check(scheme)](&inside))
      end
    end
  end
  return from:expect_absent("output_activations")
end

terra Quantisation:read_targets(from : &ConfigReader) : int32
  var targets = from:find("targets")
  if targets == nil then
    return from:missing("targets")
  end
  status.try(self.targets:read(targets, &self.arena, "targets", from))
  self.covers_all_linears = self.targets:names_linears()
  return C.GLM_OK
end

terra Quantisation:read_groups(from : &ConfigReader) : int32
  var groups = from:find("config_groups")
  if groups == nil then
    return from:missing("config_groups")
  end
  var group = from.document:child(groups)
  if groups.kind ~= json.object_kind or group == nil then
    return from:wrong_kind("config_groups", "an object with at least one group", groups)
  end
  var all = from:inside(text.slice("config_groups"), groups)
  while group ~= nil do
    var inside = all:inside(group.key, group)
    if group.kind ~= json.object_kind then
      var name : int8[64]
      C.snprintf(&name[0], 64, "%.*s", [int32](group.key.size), group.key.data)
      return all:wrong_kind(&name[0], "an object", group)
    end
    status.try(check_group(&inside))
    status.try(self:read_targets(&inside))
    group = from.document:next(group)
  end
  return C.GLM_OK
end

local terra check_cache_scheme(from : &ConfigReader) : int32
  if from:find([cache_scheme.key]) == nil then
    return C.GLM_OK
  end
  var inside : ConfigReader
  status.try(from:object_of([cache_scheme.key], &inside))
  return [scheme_check(cache_scheme)](&inside)
end

local terra check_sparsity(from : &ConfigReader) : int32
  var inside : ConfigReader
  status.try(from:object_of("sparsity_config", &inside))
  if inside.object == nil or inside.object.num_children == 0 then
    return C.GLM_OK
  end
  return inside:expect_string("format", "dense")
end

local terra check_transforms(from : &ConfigReader) : int32
  var inside : ConfigReader
  status.try(from:object_of("transform_config", &inside))
  var groups = inside:find("config_groups")
  var num_empty = terralib.select(groups ~= nil and groups.num_children == 0, 1, 0)
  if inside.object == nil or inside.object.num_children == num_empty then
    return C.GLM_OK
  end
  return from:refuse("transform_config", inside.object, "null or an empty object")
end

local terra check_method(from : &ConfigReader) : int32
  var blocks = from:find("weight_block_size")
  if blocks ~= nil then
    return from:refuse("weight_block_size", blocks, "null (one scale per channel)")
  end
  status.try(from:expect_string("quant_method", "compressed-tensors"))
  status.try(from:expect_string("format", [quantisation.format]))
  status.try(expect_either(from, "quantization_status", "compressed", "frozen"))
  status.try(check_sparsity(from))
  status.try(check_transforms(from))
  return check_cache_scheme(from)
end

terra Quantisation:read(from : &ConfigReader) : int32
  var inside : ConfigReader
  status.try(from:object_of([quantisation.key], &inside))
  if inside.object == nil then
    return C.GLM_OK
  end
  self.is_present = true
  status.try(check_method(&inside))
  status.try(self:read_groups(&inside))
  var ignore = inside:find("ignore")
  if ignore == nil then
    return C.GLM_OK
  end
  status.try(self.ignore:read(ignore, &self.arena, "ignore", &inside))
  self.ignores_all_linears = self.ignore:names_linears()
  return C.GLM_OK
end

terra quantisation.check_side_file(document : &json.Document, path : rawstring, message : &C.glm_message) : int32
  var from = reader.open(document, path, message)
  var inside : ConfigReader
  status.try(from:object_of("quantization", &inside))
  status.try(inside:expect_absent("quant_algo"))
  return inside:expect_absent("kv_cache_quant_algo")
end

terra Quantisation:covers(linear : rawstring) : bool
  if not self.is_present then
    return false
  end
  var name = text.slice(linear)
  return (self.covers_all_linears or self.targets:matches(name)) and not (self.ignores_all_linears or self.ignore:matches(name))
end

return quantisation
