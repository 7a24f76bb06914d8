local abi = require("terra.base.abi")
local json = require("terra.base.json")
local status = require("terra.base.status")
local text = require("terra.base.text")
local C = abi.C

local struct ConfigReader {
  document : &json.Document
  object : &json.Node
  path : rawstring
  message : &C.glm_message
}

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
  return status.fail(self.message, C.GLM_INVALID_CHECKPOINT, "%s: %s is missing", self.path, key)
end

terra ConfigReader:wrong_kind(key : rawstring, expected : rawstring, node : &json.Node) : int32
  return status.fail(
    self.message,
    C.GLM_INVALID_CHECKPOINT,
    "%s: %s: expected %s, got %s %.*s",
    self.path,
    key,
    expected,
    json.kind_name(node.kind),
    [int32](node.string.size),
    node.string.data
  )
end

terra ConfigReader:check_integer(key : rawstring, node : &json.Node, least : int64, most : int64) : int32
  if node.kind ~= json.number_kind or not node.is_integer then
    return self:wrong_kind(key, "an integer", node)
  end
  if node.integer < least or node.integer > most then
    return status.fail(
      self.message,
      C.GLM_INVALID_CHECKPOINT,
      "%s: %s is %lld, outside %lld to %lld",
      self.path,
      key,
      node.integer,
      least,
      most
    )
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
    return status.fail(
      self.message,
      C.GLM_INVALID_CHECKPOINT,
      "%s: %s is %g, outside %g to %g",
      self.path,
      key,
      node.number,
      least,
      most
    )
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
    return status.fail(
      self.message,
      C.GLM_NOT_SUPPORTED,
      "%s: %s is %lld; only %lld is supported",
      self.path,
      key,
      node.integer,
      wanted
    )
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
    return status.fail(
      self.message,
      C.GLM_NOT_SUPPORTED,
      "%s: %s is \"%.*s\"; only \"%s\" is supported",
      self.path,
      key,
      [int32](node.string.size),
      node.string.data,
      wanted
    )
  end
  return C.GLM_OK
end

terra ConfigReader:expect_flag(key : rawstring, wanted : bool) : int32
  var value = wanted
  status.try(self:flag(key, wanted, &value))
  if value ~= wanted then
    var words = arrayof(rawstring, "false", "true")
    return status.fail(
      self.message,
      C.GLM_NOT_SUPPORTED,
      "%s: %s is %s; only %s is supported",
      self.path,
      key,
      words[terralib.select(value, 1, 0)],
      words[terralib.select(wanted, 1, 0)]
    )
  end
  return C.GLM_OK
end

terra ConfigReader:expect_absent(key : rawstring) : int32
  if self:find(key) ~= nil then
    return status.fail(self.message, C.GLM_NOT_SUPPORTED, "%s: %s is set, which is not supported", self.path, key)
  end
  return C.GLM_OK
end

terra ConfigReader:inside(object : &json.Node) : ConfigReader
  var reader = @self
  reader.object = object
  return reader
end

return { ConfigReader = ConfigReader }
