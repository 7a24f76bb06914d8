local abi = require("terra.base.abi")
local containers = require("terra.base.containers")
local status = require("terra.base.status")
local text = require("terra.base.text")
local C = abi.C
local Slice = text.Slice

local regex = { max_depth = 64, max_program = 4096, max_repeat = 255 }

local kinds = { "empty", "set", "sequence", "either", "many", "begin", "finish" }
local kind = {}
for index, name in ipairs(kinds) do
  kind[name] = index
end

local failed = -1
local unbounded = -1
local code = string.byte

local struct ByteSet {
  bits : uint64[4]
}

terra ByteSet:clear()
  for i = 0, 4 do
    self.bits[i] = 0
  end
end

terra ByteSet:add_range(first : int32, last : int32)
  for byte = first, last + 1 do
    self.bits[byte / 64] = self.bits[byte / 64] or (1ULL << (byte % 64))
  end
end

terra ByteSet:add(other : &ByteSet)
  for i = 0, 4 do
    self.bits[i] = self.bits[i] or other.bits[i]
  end
end

terra ByteSet:invert()
  for i = 0, 4 do
    self.bits[i] = not self.bits[i]
  end
end

terra ByteSet:has(byte : int32) : bool
  return ((self.bits[byte / 64] >> (byte % 64)) and 1ULL) ~= 0
end

local struct Tree {
  kind : int32
  left : int32
  right : int32
  least : int32
  most : int32
  set : ByteSet
}

local struct Parser {
  pattern : Slice
  position : int64
  trees : containers.Vector(Tree)
  message : &C.glm_message
}
regex.Parser = Parser
regex.Tree = Tree
regex.ByteSet = ByteSet
regex.kind = kind
regex.failed = failed
regex.unbounded = unbounded

terra Parser:fail(cause : rawstring) : int32
  status.fail(
    self.message,
    C.GLM_NOT_SUPPORTED,
    "invalid pattern \"%.*s\" at character %lld: %s",
    [int32](self.pattern.size),
    self.pattern.data,
    self.position,
    cause
  )
  return failed
end

terra Parser:peek() : int32
  if self.position < self.pattern.size then
    return self.pattern.data[self.position]
  end
  return -1
end

terra Parser:tree(node_kind : int32, left : int32, right : int32) : int32
  var tree : Tree
  tree.kind = node_kind
  tree.left = left
  tree.right = right
  tree.least = 0
  tree.most = 0
  tree.set:clear()
  if self.trees.size >= regex.max_program or not self.trees:push(tree) then
    return self:fail("the pattern is too large")
  end
  return [int32](self.trees.size - 1)
end

local classes = {
  { letter = "d", ranges = { { "0", "9" } } },
  { letter = "w", ranges = { { "0", "9" }, { "a", "z" }, { "A", "Z" }, { "_", "_" } } },
  { letter = "s", ranges = { { "\t", "\r" }, { " ", " " } } },
}

local controls = { { "n", 10 }, { "t", 9 }, { "r", 13 }, { "f", 12 }, { "v", 11 } }

terra Parser:escaped_set(set : &ByteSet) : int32
  var byte = self:peek()
  set:clear()
  self.position = self.position + 1
  escape
    for _, class in ipairs(classes) do
      for _, letter in ipairs { class.letter, class.letter:upper() } do
        emit quote
          if byte == [code(letter)] then
            escape
              for _, range in ipairs(class.ranges) do
                emit quote set:add_range([code(range[1])], [code(range[2])]) end
              end
              if letter ~= class.letter then
                emit quote set:invert() end
              end
            end
            return failed
          end
        end
      end
    end
    for _, control in ipairs(controls) do
      emit quote
        if byte == [code(control[1])] then
          byte = [control[2]]
          set:add_range(byte, byte)
          return byte
        end
      end
    end
  end
  if byte >= 0 then
    set:add_range(byte, byte)
  end
  return byte
end

local terra is_letter_or_digit(byte : int32) : bool
  return (byte >= [code("0")] and byte <= [code("9")])
    or (byte >= [code("a")] and byte <= [code("z")])
    or (byte >= [code("A")] and byte <= [code("Z")])
end

terra Parser:check_escape() : bool
  var byte = self:peek()
  if byte < 0 then
    self:fail("the pattern ends with a backslash")
    return false
  end
  var is_known = not is_letter_or_digit(byte)
  escape
    for _, letter in ipairs { "d", "D", "w", "W", "s", "S", "n", "t", "r", "f", "v" } do
      emit quote is_known = is_known or byte == [code(letter)] end
    end
  end
  if not is_known then
    self:fail("this escape sequence is not supported")
  end
  return is_known
end

terra Parser:parse_escape() : int32
  self.position = self.position + 1
  if not self:check_escape() then
    return failed
  end
  var tree = self:tree(kind.set, failed, failed)
  if tree ~= failed then
    self:escaped_set(&self.trees:at(tree).set)
  end
  return tree
end

terra Parser:class_member(set : &ByteSet) : int32
  var byte = self:peek()
  if byte == [code("\\")] then
    self.position = self.position + 1
    if not self:check_escape() then
      return -2
    end
    return self:escaped_set(set)
  end
  if byte >= 128 then
    self:fail("only ASCII characters are supported inside brackets")
    return -2
  end
  set:clear()
  set:add_range(byte, byte)
  self.position = self.position + 1
  return byte
end

terra Parser:class_range(first : int32, member : &ByteSet) : int32
  var next : ByteSet
  self.position = self.position + 1
  var last = self:class_member(&next)
  if last == -2 then
    return failed
  end
  if last < first then
    return self:fail("a character range is reversed")
  end
  member:add_range(first, last)
  return 0
end

terra Parser:parse_members(set : &ByteSet) : int32
  var is_first = true
  while is_first or self:peek() ~= [code("]")] do
    is_first = false
    if self:peek() < 0 then
      return self:fail("a bracket expression is not closed")
    end
    var member : ByteSet
    var first = self:class_member(&member)
    if first == -2 then
      return failed
    end
    var is_range = self:peek() == [code("-")]
      and self.position + 1 < self.pattern.size
      and self.pattern.data[self.position + 1] ~= [code("]")]
    if is_range and (first < 0 or self:class_range(first, &member) == failed) then
      if first < 0 then
        return self:fail("a character range cannot start with a character class")
      end
      return failed
    end
    set:add(&member)
  end
  self.position = self.position + 1
  return 0
end

terra Parser:parse_brackets() : int32
  self.position = self.position + 1
  var is_negated = self:peek() == [code("^")]
  if is_negated then
    self.position = self.position + 1
  end
  var set : ByteSet
  set:clear()
  if self:parse_members(&set) == failed then
    return failed
  end
  if is_negated then
    set:invert()
  end
  var tree = self:tree(kind.set, failed, failed)
  if tree ~= failed then
    self.trees:at(tree).set = set
  end
  return tree
end

return regex
