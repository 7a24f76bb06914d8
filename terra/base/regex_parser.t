local regex = require("terra.base.regex_sets")
local Parser = regex.Parser
local kind = regex.kind
local failed = regex.failed
local unbounded = regex.unbounded
local code = string.byte

local terra parse_either :: {&Parser, int32} -> int32

terra Parser:parse_group(depth : int32) : int32
  if depth >= regex.max_depth then
    return self:fail("groups are nested too deeply")
  end
  self.position = self.position + 1
  if self:peek() == [code("?")] then
    self.position = self.position + 1
    if self:peek() ~= [code(":")] then
      return self:fail("this kind of group is not supported")
    end
    self.position = self.position + 1
  end
  var tree = parse_either(self, depth + 1)
  if tree == failed then
    return failed
  end
  if self:peek() ~= [code(")")] then
    return self:fail("a group has no closing parenthesis")
  end
  self.position = self.position + 1
  return tree
end

terra Parser:parse_single(byte : int32) : int32
  var tree = self:tree(kind.set, failed, failed)
  if tree == failed then
    return failed
  end
  var set = &self.trees:at(tree).set
  if byte == [code(".")] then
    set:add_range(10, 10)
    set:invert()
  else
    set:add_range(byte, byte)
  end
  self.position = self.position + 1
  return tree
end

terra Parser:parse_atom(depth : int32) : int32
  var byte = self:peek()
  if byte == [code("(")] then
    return self:parse_group(depth)
  elseif byte == [code("[")] then
    return self:parse_brackets()
  elseif byte == [code("\\")] then
    return self:parse_escape()
  elseif byte == [code("^")] or byte == [code("$")] then
    self.position = self.position + 1
    if byte == [code("^")] then
      return self:tree(kind.begin, failed, failed)
    end
    return self:tree(kind.finish, failed, failed)
  elseif byte == [code("*")] or byte == [code("+")] or byte == [code("?")] or byte == [code("{")] then
    return self:fail("a repeat operator has nothing to repeat")
  end
  return self:parse_single(byte)
end

terra Parser:parse_count(otherwise : int32) : int32
  var value, has_digit = 0, false
  while self:peek() >= [code("0")] and self:peek() <= [code("9")] do
    value = value * 10 + (self:peek() - [code("0")])
    has_digit = true
    if value > regex.max_repeat then
      self:fail("a repeat count is greater than 255")
      return -2
    end
    self.position = self.position + 1
  end
  if not has_digit then
    return otherwise
  end
  return value
end

terra Parser:parse_braces(least : &int32, most : &int32) : int32
  self.position = self.position + 1
  @least = self:parse_count(0)
  @most = @least
  if @least ~= -2 and self:peek() == [code(",")] then
    self.position = self.position + 1
    @most = self:parse_count(unbounded)
  end
  if @least == -2 or @most == -2 then
    return failed
  end
  if self:peek() ~= [code("}")] or (@most ~= unbounded and @most < @least) then
    return self:fail("the repeat count in braces is invalid")
  end
  self.position = self.position + 1
  return 0
end

terra Parser:parse_quantifier(least : &int32, most : &int32) : int32
  var byte = self:peek()
  if byte == [code("{")] then
    return self:parse_braces(least, most)
  end
  @least = 0
  @most = unbounded
  if byte == [code("+")] then
    @least = 1
  elseif byte == [code("?")] then
    @most = 1
  elseif byte ~= [code("*")] then
    return 1
  end
  self.position = self.position + 1
  return 0
end

terra Parser:parse_repeated(depth : int32) : int32
  var atom = self:parse_atom(depth)
  if atom == failed then
    return failed
  end
  var least, most = 0, 0
  var result = self:parse_quantifier(&least, &most)
  if result ~= 0 then
    return terralib.select(result == failed, failed, atom)
  end
  if self:peek() == [code("?")] then
    self.position = self.position + 1
  elseif self:peek() == [code("*")] or self:peek() == [code("+")] or self:peek() == [code("{")] then
    return self:fail("a repeat operator cannot follow another repeat operator")
  end
  var tree = self:tree(kind.many, atom, failed)
  if tree ~= failed then
    self.trees:at(tree).least = least
    self.trees:at(tree).most = most
  end
  return tree
end

terra Parser:parse_sequence(depth : int32) : int32
  var sequence = self:tree(kind.empty, failed, failed)
  while sequence ~= failed and self:peek() >= 0 and self:peek() ~= [code("|")] and self:peek() ~= [code(")")] do
    var next = self:parse_repeated(depth)
    if next == failed then
      return failed
    end
    sequence = self:tree(kind.sequence, sequence, next)
  end
  return sequence
end

terra parse_either(self : &Parser, depth : int32) : int32
  var tree = self:parse_sequence(depth)
  while tree ~= failed and self:peek() == [code("|")] do
    self.position = self.position + 1
    var right = self:parse_sequence(depth)
    if right == failed then
      return failed
    end
    tree = self:tree(kind.either, tree, right)
  end
  return tree
end

terra Parser:parse() : int32
  var tree = parse_either(self, 0)
  if tree ~= failed and self.position ~= self.pattern.size then
    return self:fail("a closing parenthesis has no matching opening parenthesis")
  end
  return tree
end

return regex
