local abi = require("terra.base.abi")
local containers = require("terra.base.containers")
local regex = require("terra.base.regex_parser")
local text = require("terra.base.text")
local C = abi.C
local Slice = text.Slice
local Parser = regex.Parser
local Tree = regex.Tree
local kind = regex.kind

local operations = { set = 1, split = 2, jump = 3, begin = 4, finish = 5, accept = 6 }

local struct Instruction {
  operation : int32
  first : int32
  second : int32
  set : regex.ByteSet
}

local struct Regex {
  program : containers.Vector(Instruction)
  current : containers.Vector(int32)
  following : containers.Vector(int32)
  pending : containers.Vector(int32)
  marks : containers.Vector(int64)
  generation : int64
}
regex.Regex = Regex

terra Regex:init()
  self.program:init()
  self.current:init()
  self.following:init()
  self.pending:init()
  self.marks:init()
  self.generation = 0
end

terra Regex:free()
  self.program:free()
  self.current:free()
  self.following:free()
  self.pending:free()
  self.marks:free()
end

terra Regex:here() : int32
  return [int32](self.program.size)
end

terra Regex:add(operation : int32) : int32
  var instruction : Instruction
  instruction.operation = operation
  instruction.first = 0
  instruction.second = 0
  instruction.set:clear()
  if self.program.size >= regex.max_program or not self.program:push(instruction) then
    return regex.failed
  end
  return self:here() - 1
end

local terra emit_tree :: {&Regex, &Parser, int32} -> bool

terra Regex:emit_either(parser : &Parser, tree : &Tree) : bool
  var split = self:add(operations.split)
  if split == regex.failed then
    return false
  end
  self.program:at(split).first = self:here()
  if not emit_tree(self, parser, tree.left) then
    return false
  end
  var jump = self:add(operations.jump)
  if jump == regex.failed then
    return false
  end
  self.program:at(split).second = self:here()
  if not emit_tree(self, parser, tree.right) then
    return false
  end
  self.program:at(jump).first = self:here()
  return true
end

terra Regex:emit_optional(parser : &Parser, body : int32, loops : bool) : bool
  var split = self:add(operations.split)
  if split == regex.failed then
    return false
  end
  self.program:at(split).first = self:here()
  if not emit_tree(self, parser, body) then
    return false
  end
  if loops then
    var jump = self:add(operations.jump)
    if jump == regex.failed then
      return false
    end
    self.program:at(jump).first = split
  end
  self.program:at(split).second = self:here()
  return true
end

terra Regex:emit_many(parser : &Parser, tree : &Tree) : bool
  for i = 0, tree.least do
    if not emit_tree(self, parser, tree.left) then
      return false
    end
  end
  if tree.most == regex.unbounded then
    return self:emit_optional(parser, tree.left, true)
  end
  for i = tree.least, tree.most do
    if not self:emit_optional(parser, tree.left, false) then
      return false
    end
  end
  return true
end

terra emit_tree(self : &Regex, parser : &Parser, index : int32) : bool
  var tree = parser.trees:at(index)
  if tree.kind == kind.empty then
    return true
  elseif tree.kind == kind.sequence then
    return emit_tree(self, parser, tree.left) and emit_tree(self, parser, tree.right)
  elseif tree.kind == kind.either then
    return self:emit_either(parser, tree)
  elseif tree.kind == kind.many then
    return self:emit_many(parser, tree)
  end
  var operation = operations.set
  if tree.kind == kind.begin then
    operation = operations.begin
  elseif tree.kind == kind.finish then
    operation = operations.finish
  end
  var instruction = self:add(operation)
  if instruction ~= regex.failed then
    self.program:at(instruction).set = tree.set
  end
  return instruction ~= regex.failed
end

terra Regex:prepare_lists() : bool
  var size = self.program.size
  var is_ready = self.current:reserve(size) and self.following:reserve(size)
  is_ready = is_ready and self.pending:reserve(2 * size + 2) and self.marks:resize(size)
  if is_ready then
    for i = 0, size do
      self.marks.data[i] = 0
    end
  end
  return is_ready
end

terra Regex:compile(pattern : Slice, message : &C.glm_message) : int32
  self:init()
  var parser = Parser { pattern = pattern, position = 0, message = message }
  parser.trees:init()
  var root = parser:parse()
  var is_built = root ~= regex.failed
  if is_built then
    is_built = emit_tree(self, &parser, root) and self:add(operations.accept) ~= regex.failed and self:prepare_lists()
    if not is_built then
      parser:fail("the pattern is too large")
    end
  end
  parser.trees:free()
  if not is_built then
    self:free()
    self:init()
    return C.GLM_NOT_SUPPORTED
  end
  return C.GLM_OK
end

terra Regex:reach(target : &containers.Vector(int32), start : int32, position : int64, size : int64) : bool
  self.pending:clear()
  self.pending:push(start)
  while self.pending.size > 0 do
    var index = self.pending:pop()
    if self.marks.data[index] ~= self.generation then
      self.marks.data[index] = self.generation
      var instruction = self.program:at(index)
      if instruction.operation == operations.accept then
        return true
      elseif instruction.operation == operations.set then
        target:push(index)
      elseif instruction.operation == operations.jump then
        self.pending:push(instruction.first)
      elseif instruction.operation == operations.split then
        self.pending:push(instruction.second)
        self.pending:push(instruction.first)
      elseif (instruction.operation == operations.begin and position == 0)
        or (instruction.operation == operations.finish and position == size) then
        self.pending:push(index + 1)
      end
    end
  end
  return false
end

terra Regex:matches(value : Slice) : bool
  self.current:clear()
  self.generation = self.generation + 1
  if self:reach(&self.current, 0, 0, value.size) then
    return true
  end
  for position = 0, value.size do
    self.following:clear()
    self.generation = self.generation + 1
    for i = 0, self.current.size do
      var index = self.current.data[i]
      if self.program:at(index).set:has(value.data[position]) then
        if self:reach(&self.following, index + 1, position + 1, value.size) then
          return true
        end
      end
    end
    self.current, self.following = self.following, self.current
    if self.current.size == 0 then
      return false
    end
  end
  return false
end

return regex
