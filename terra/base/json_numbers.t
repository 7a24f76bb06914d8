local abi = require("terra.base.abi")
local json = require("terra.base.json_document")
local text = require("terra.base.text")
local C = abi.C
local Slice = text.Slice
local Document = json.Document
local failed = json.failed
local code = json.code

terra Document:skip_digits() : int64
  var first = self.position
  while self:peek() >= [code("0")] and self:peek() <= [code("9")] do
    self.position = self.position + 1
  end
  return self.position - first
end

terra Document:scan_number(is_integer : &bool) : int32
  if self:peek() == [code("-")] then
    self.position = self.position + 1
  end
  var starts_with_zero = self:peek() == [code("0")]
  var num_digits = self:skip_digits()
  if num_digits == 0 or (starts_with_zero and num_digits > 1) then
    return self:fail("a number has no digits or has a leading zero")
  end
  @is_integer = true
  if self:peek() == [code(".")] then
    @is_integer = false
    self.position = self.position + 1
    if self:skip_digits() == 0 then
      return self:fail("a number has no digits after its decimal point")
    end
  end
  if self:peek() == [code("e")] or self:peek() == [code("E")] then
    @is_integer = false
    self.position = self.position + 1
    if self:peek() == [code("+")] or self:peek() == [code("-")] then
      self.position = self.position + 1
    end
    if self:skip_digits() == 0 then
      return self:fail("a number has no digits in its exponent")
    end
  end
  return 0
end

local numeric_category_mask = `2

local terra to_double(digits : rawstring) : double
  var locale = C.newlocale(numeric_category_mask, "C", nil)
  if locale == nil then
    return C.strtod(digits, nil)
  end
  var value = C.strtod_l(digits, nil, locale)
  C.freelocale(locale)
  return value
end

terra json.parse_integer(digits : Slice, value : &int64) : bool
  var position, is_negative = [int64](0), digits.data[0] == [code("-")]
  if is_negative then
    position = 1
  end
  if digits.size - position > 18 then
    return false
  end
  var total : int64 = 0
  while position < digits.size do
    total = total * 10 + (digits.data[position] - [code("0")])
    position = position + 1
  end
  if is_negative then
    total = -total
  end
  @value = total
  return true
end

terra Document:parse_number() : int32
  var first, is_integer = self.position, false
  if self:scan_number(&is_integer) == failed then
    return failed
  end
  var digits = Slice { data = self.input.data + first, size = self.position - first }
  if digits.size >= json.max_number_bytes then
    return self:fail("a number is longer than 255 characters")
  end
  var index = self:new_node(json.number_kind)
  if index == failed then
    return failed
  end
  var node = self:node(index)
  node.string = digits
  node.is_integer = is_integer and json.parse_integer(digits, &node.integer)
  if node.is_integer then
    node.number = node.integer
    return index
  end
  var copy : int8[json.max_number_bytes]
  text.copy_into(&copy[0], json.max_number_bytes, digits)
  node.number = to_double(&copy[0])
  return index
end

return json
