local abi = require("terra.base.abi")
local json = require("terra.base.json_document")
require("terra.base.json_strings")
require("terra.base.json_numbers")
local text = require("terra.base.text")
local C = abi.C
local Slice = text.Slice
local Document = json.Document
local failed = json.failed
local code = json.code

terra Document:parse_word(word : rawstring, kind : int32) : int32
  var size = [int64](C.strlen(word))
  if self.input.size - self.position < size or C.memcmp(self.input.data + self.position, word, size) ~= 0 then
    return self:fail("expected a value")
  end
  self.position = self.position + size
  return self:new_node(kind)
end

terra Document:append(parent : int32, child : int32)
  var owner = self:node(parent)
  if owner.last_child == failed then
    owner.first_child = child
  else
    self:node(owner.last_child).next = child
  end
  owner.last_child = child
  owner.num_children = owner.num_children + 1
end

terra Document:has_duplicate_in_few(object : int32) : bool
  var a = self:node(object).first_child
  while a ~= failed do
    var b = self:node(a).next
    while b ~= failed do
      if text.equal(self:node(a).key, self:node(b).key) then
        return true
      end
      b = self:node(b).next
    end
    a = self:node(a).next
  end
  return false
end

terra Document:fail_duplicate(key : Slice) : int32
  var cause : int8[256]
  C.snprintf(&cause[0], 256, "the key \"%.*s\" appears twice in one object", [int32](key.size), key.data)
  return self:fail(&cause[0])
end

terra Document:check_duplicates(object : int32) : int32
  var count = self:node(object).num_children
  if count <= 8 and not self:has_duplicate_in_few(object) then
    return 0
  end
  self.keys:clear()
  if not self.keys:reserve(count) then
    return self:fail("out of memory")
  end
  var child = self:node(object).first_child
  while child ~= failed do
    var key = self:node(child).key
    if self.keys:find(key) ~= nil then
      return self:fail_duplicate(key)
    end
    if not self.keys:insert(key, child) then
      return self:fail("out of memory")
    end
    child = self:node(child).next
  end
  return 0
end

local terra parse_value :: {&Document, int32} -> int32

terra Document:parse_member(parent : int32, depth : int32) : int32
  var key : Slice
  self:skip_space()
  if self:peek() ~= [code('"')] then
    return self:fail("expected a key in double quotes")
  end
  if self:parse_string(&key) == failed then
    return failed
  end
  self:skip_space()
  if self:peek() ~= [code(":")] then
    return self:fail("expected a colon after the key")
  end
  self.position = self.position + 1
  var child = parse_value(self, depth)
  if child == failed then
    return failed
  end
  self:node(child).key = key
  self:append(parent, child)
  return 0
end

terra Document:parse_element(parent : int32, depth : int32) : int32
  var child = parse_value(self, depth)
  if child == failed then
    return failed
  end
  self:append(parent, child)
  return 0
end

terra Document:parse_children(parent : int32, depth : int32, close : int32, is_object : bool) : int32
  self.position = self.position + 1
  self:skip_space()
  if self:peek() == close then
    self.position = self.position + 1
    return parent
  end
  while true do
    var result : int32
    if is_object then
      result = self:parse_member(parent, depth)
    else
      result = self:parse_element(parent, depth)
    end
    if result == failed then
      return failed
    end
    self:skip_space()
    var next = self:peek()
    if next == close then
      self.position = self.position + 1
      return parent
    elseif next ~= [code(",")] then
      return self:fail("expected a comma or the end of an array or object")
    end
    self.position = self.position + 1
  end
end

terra Document:parse_container(kind : int32, depth : int32, close : int32) : int32
  if depth >= json.max_depth then
    return self:fail(["nested deeper than " .. json.max_depth .. " levels"])
  end
  var index = self:new_node(kind)
  if index == failed then
    return failed
  end
  if self:parse_children(index, depth + 1, close, kind == json.object_kind) == failed then
    return failed
  end
  if kind == json.object_kind and self:check_duplicates(index) == failed then
    return failed
  end
  return index
end

terra Document:parse_string_value() : int32
  var value : Slice
  if self:parse_string(&value) == failed then
    return failed
  end
  var index = self:new_node(json.string_kind)
  if index ~= failed then
    self:node(index).string = value
  end
  return index
end

terra parse_value(self : &Document, depth : int32) : int32
  self:skip_space()
  var byte = self:peek()
  if byte == [code("{")] then
    return self:parse_container(json.object_kind, depth, [code("}")])
  elseif byte == [code("[")] then
    return self:parse_container(json.array_kind, depth, [code("]")])
  elseif byte == [code('"')] then
    return self:parse_string_value()
  elseif byte == [code("-")] or (byte >= [code("0")] and byte <= [code("9")]) then
    return self:parse_number()
  elseif byte == [code("t")] then
    return self:parse_word("true", json.true_kind)
  elseif byte == [code("f")] then
    return self:parse_word("false", json.false_kind)
  elseif byte == [code("n")] then
    return self:parse_word("null", json.null_kind)
  end
  return self:fail("expected a value")
end

terra Document:parse(input : Slice, source : rawstring, message : &C.glm_message) : int32
  self.nodes:clear()
  self.input = input
  self.position = 0
  self.source = source
  self.message = message
  if parse_value(self, 0) == failed then
    return C.GLM_INVALID_CHECKPOINT
  end
  self:skip_space()
  if self.position ~= input.size then
    self:fail("unexpected text after the end of the document")
    return C.GLM_INVALID_CHECKPOINT
  end
  return C.GLM_OK
end

return json
