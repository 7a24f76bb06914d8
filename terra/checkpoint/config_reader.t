local abi = require("terra.base.abi")
local json = require("terra.base.json")
local status = require("terra.base.status")
local text = require("terra.base.text")
local C = abi.C

local prefix_capacity = 192
local shown_capacity = 96

local struct ConfigReader {
  document : &json.Document
  object : &json.Node
  path : rawstring
  message : &C.glm_message
  prefix : int8[prefix_capacity]
}

local fail = macro(function(self, code, format, key, ...)
  local arguments = terralib.newlist { ... }
  return quote
    var code_of_failure = status.fail(self.message, code, ["%s: %s%s" .. format:asvalue()], self.path, &self.prefix[0], key, [arguments])
  in
    code_of_failure
  end
end)

local terra open(document : &json.Document, path : rawstring, message : &C.glm_message) : ConfigReader
  var reader = ConfigReader { document = document, object = document:root(), path = path, message = message }
  reader.prefix[0] = 0
  return reader
end

terra ConfigReader:inside(key : text.Slice, object : &json.Node) : ConfigReader
  var reader = @self
  reader.object = object
  C.snprintf(&reader.prefix[0], prefix_capacity, "%s%.*s.", &self.prefix[0], [int32](key.size), key.data)
  return reader
end

terra ConfigReader:find(key : rawstring) : &json.Node
  var node = self.document:find(self.object, key)
  if node ~= nil and node.kind == json.null_kind then
    return nil
  end
  return node
end

terra ConfigReader:is_null(key : rawstring) : bool
  var node = self.document:find(self.object, key)
  return node ~= nil and node.kind == json.null_kind
end

terra ConfigReader:missing(key : rawstring) : int32
  if self:is_null(key) then
    return fail(self, C.GLM_INVALID_CHECKPOINT, " is null, but this field needs a value", key)
  end
  return fail(self, C.GLM_INVALID_CHECKPOINT, " is missing", key)
end

terra ConfigReader:wrong_kind(key : rawstring, expected : rawstring, node : &json.Node) : int32
  return fail(
    self, C.GLM_INVALID_CHECKPOINT, ": expected %s, got %s %.*s", key,
    expected, json.kind_name(node.kind), [int32](node.string.size), node.string.data
  )
end

local terra show(node : &json.Node, shown : &int8)
  if node.kind == json.string_kind then
    C.snprintf(shown, shown_capacity, "\"%.*s\"", [int32](node.string.size), node.string.data)
  elseif node.kind == json.number_kind and node.is_integer then
    C.snprintf(shown, shown_capacity, "%lld", node.integer)
  elseif node.kind == json.number_kind then
    C.snprintf(shown, shown_capacity, "%.9g", node.number)
  elseif node.kind == json.array_kind or node.kind == json.object_kind then
    C.snprintf(shown, shown_capacity, "an %s", json.kind_name(node.kind))
  else
    C.snprintf(shown, shown_capacity, "%s", json.kind_name(node.kind))
  end
end

terra ConfigReader:refuse(key : rawstring, node : &json.Node, supported : rawstring) : int32
  var shown : int8[shown_capacity]
  show(node, &shown[0])
  return fail(self, C.GLM_NOT_SUPPORTED, " is %s; only %s is supported", key, &shown[0], supported)
end

terra ConfigReader:check_integer(key : rawstring, node : &json.Node, least : int64, most : int64) : int32
  if node.kind ~= json.number_kind or not node.is_integer then
    return self:wrong_kind(key, "an integer", node)
  end
  if node.integer < least or node.integer > most then
    return fail(self, C.GLM_INVALID_CHECKPOINT, " is %lld; expected %lld to %lld", key, node.integer, least, most)
  end
  return C.GLM_OK
end

terra ConfigReader:integer(key : rawstring, least : int64, most : int64, target : &int32) : int32
  var node = self:find(key)
  if node == nil then
    return self:missing(key)
  end
  status.try(self:check_integer(key, node, least, most))
  @target = [int32](node.integer)
  return C.GLM_OK
end

terra ConfigReader:flag(key : rawstring, otherwise : bool, target : &bool) : int32
  @target = otherwise and not self:is_null(key)
  var node = self:find(key)
  if node == nil then
    return C.GLM_OK
  end
  if node.kind ~= json.true_kind and node.kind ~= json.false_kind then
    return self:wrong_kind(key, "true or false", node)
  end
  @target = node.kind == json.true_kind
  return C.GLM_OK
end

terra ConfigReader:real(key : rawstring, least : double, most : double, target : &double) : int32
  var node = self:find(key)
  if node == nil then
    return self:missing(key)
  end
  if node.kind ~= json.number_kind then
    return self:wrong_kind(key, "a number", node)
  end
  if not (node.number >= least and node.number <= most) then
    return fail(self, C.GLM_INVALID_CHECKPOINT, " is %g; expected %g to %g", key, node.number, least, most)
  end
  @target = node.number
  return C.GLM_OK
end

terra ConfigReader:optional_real(key : rawstring, least : double, most : double, otherwise : double, target : &double) : int32
  if self:find(key) == nil then
    @target = otherwise
    return C.GLM_OK
  end
  return self:real(key, least, most, target)
end

terra ConfigReader:optional_integer(key : rawstring, least : int64, most : int64, otherwise : int32, target : &int32) : int32
  if self:find(key) == nil then
    @target = otherwise
    return C.GLM_OK
  end
  return self:integer(key, least, most, target)
end

terra ConfigReader:expect_integer(key : rawstring, wanted : int64) : int32
  var node = self:find(key)
  if node == nil then
    return C.GLM_OK
  end
  if node.kind ~= json.number_kind or not node.is_integer then
    return self:wrong_kind(key, "an integer", node)
  end
  if node.integer ~= wanted then
    var supported : int8[32]
    C.snprintf(&supported[0], 32, "%lld", wanted)
    return self:refuse(key, node, &supported[0])
  end
  return C.GLM_OK
end

terra ConfigReader:expect_string(key : rawstring, wanted : rawstring) : int32
  var node = self:find(key)
  if node == nil then
    return self:missing(key)
  end
  if node.kind ~= json.string_kind then
    return self:wrong_kind(key, "a string", node)
  end
  if not text.equals(node.string, wanted) then
    var supported : int8[shown_capacity]
    C.snprintf(&supported[0], shown_capacity, "\"%s\"", wanted)
    return self:refuse(key, node, &supported[0])
  end
  return C.GLM_OK
end

terra ConfigReader:expect_flag(key : rawstring, wanted : bool) : int32
  var value = wanted
  status.try(self:flag(key, wanted, &value))
  if value ~= wanted then
    var words = arrayof(rawstring, "false", "true")
    return self:refuse(key, self.document:find(self.object, key), words[terralib.select(wanted, 1, 0)])
  end
  return C.GLM_OK
end

terra ConfigReader:expect_absent(key : rawstring) : int32
  var node = self:find(key)
  if node == nil then
    return C.GLM_OK
  end
  return self:refuse(key, node, "null")
end

terra ConfigReader:object_of(key : rawstring, inside : &ConfigReader) : int32
  var node = self:find(key)
  if node ~= nil and node.kind ~= json.object_kind then
    return self:wrong_kind(key, "an object", node)
  end
  @inside = self:inside(text.slice(key), node)
  return C.GLM_OK
end

return { ConfigReader = ConfigReader, open = open }
