local abi = require("terra.base.abi")
local codes = require("terra.base.codes")
local containers = require("terra.base.containers")
local status = require("terra.base.status")
local text = require("terra.base.text")
local C = abi.C
local Slice = text.Slice

local json = {}

json.max_depth = 64
json.max_number_bytes = 256
json.max_values = 2 ^ 22
json.max_bytes = 100000000

local kinds = {}
for index, name in ipairs { "null", "false", "true", "number", "string", "array", "object" } do
  kinds[index] = { name = name, code = index - 1 }
  json[name .. "_kind"] = index - 1
end

local failed = -1
json.failed = failed

local struct Node {
  kind : int32
  is_integer : bool
  num_children : int32
  first_child : int32
  last_child : int32
  next : int32
  key : Slice
  string : Slice
  integer : int64
  number : double
}
json.Node = Node

local struct Document {
  nodes : containers.Vector(Node)
  strings : text.Arena
  keys : text.Map(int32)
  input : Slice
  position : int64
  source : rawstring
  message : &C.glm_message
}
json.Document = Document

json.code = string.byte

json.kind_name = codes.name_of(kinds, "unknown")

terra Document:init()
  self.nodes:init()
  self.strings:init()
  self.keys:init()
end

terra Document:free()
  self.nodes:free()
  self.strings:free()
  self.keys:free()
end

terra Document:fail(cause : rawstring) : int32
  status.fail(
    self.message,
    C.GLM_INVALID_CHECKPOINT,
    "%s: invalid JSON at byte %lld: %s",
    self.source,
    self.position,
    cause
  )
  return failed
end

terra Document:peek() : int32
  if self.position < self.input.size then
    return self.input.data[self.position]
  end
  return -1
end

terra Document:skip_space()
  while self.position < self.input.size do
    var byte = self.input.data[self.position]
    if byte ~= 32 and byte ~= 10 and byte ~= 13 and byte ~= 9 then
      return
    end
    self.position = self.position + 1
  end
end

terra Document:node(index : int32) : &Node
  return self.nodes:at(index)
end

terra Document:new_node(kind : int32) : int32
  var node : Node
  C.memset(&node, 0, [terralib.sizeof(Node)])
  node.kind = kind
  node.first_child = failed
  node.last_child = failed
  node.next = failed
  if self.nodes.size >= json.max_values then
    return self:fail([("there are more than %d values"):format(json.max_values)])
  end
  if not self.nodes:push(node) then
    return self:fail("out of memory")
  end
  return [int32](self.nodes.size - 1)
end

terra Document:root() : &Node
  return self:node(0)
end

terra Document:child(parent : &Node) : &Node
  if parent.first_child == failed then
    return nil
  end
  return self:node(parent.first_child)
end

terra Document:next(node : &Node) : &Node
  if node.next == failed then
    return nil
  end
  return self:node(node.next)
end

terra Document:find(object : &Node, key : rawstring) : &Node
  if object == nil or object.kind ~= json.object_kind then
    return nil
  end
  var wanted = text.slice(key)
  var child = self:child(object)
  while child ~= nil do
    if text.equal(child.key, wanted) then
      return child
    end
    child = self:next(child)
  end
  return nil
end

return json
