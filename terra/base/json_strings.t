local json = require("terra.base.json_document")
local text = require("terra.base.text")
local utf8 = require("terra.base.utf8")
local Slice = text.Slice
local Document = json.Document
local failed = json.failed
local code = json.code

terra Document:scan_string(has_escape : &bool) : int32
  @has_escape = false
  while self.position < self.input.size do
    var byte = self.input.data[self.position]
    if byte == [code('"')] then
      return 0
    elseif byte < 32 then
      return self:fail("a string contains a control character")
    elseif byte == [code("\\")] then
      @has_escape = true
      self.position = self.position + 2
    elseif byte < 0x80 then
      self.position = self.position + 1
    else
      var length = utf8.length(self.input.data + self.position, self.input.size - self.position)
      if length == [utf8.failed] then
        return self:fail("a string is not valid UTF-8")
      end
      self.position = self.position + length
    end
  end
  self.position = self.input.size
  return self:fail("a string has no closing quote")
end

terra Document:hexadecimal(position : int64) : int32
  var value = 0
  for i = 0, 4 do
    var byte = [int32](self.input.data[position + i])
    var digit = -1
    if byte >= [code("0")] and byte <= [code("9")] then
      digit = byte - [code("0")]
    elseif byte >= [code("a")] and byte <= [code("f")] then
      digit = byte - [code("a")] + 10
    elseif byte >= [code("A")] and byte <= [code("F")] then
      digit = byte - [code("A")] + 10
    end
    if digit < 0 then
      return failed
    end
    value = value * 16 + digit
  end
  return value
end

local terra encode_utf8(target : &uint8, point : int32) : int32
  if point < 0x80 then
    target[0] = point
    return 1
  elseif point < 0x800 then
    target[0] = 0xC0 or (point >> 6)
    target[1] = 0x80 or (point and 0x3F)
    return 2
  elseif point < 0x10000 then
    target[0] = 0xE0 or (point >> 12)
    target[1] = 0x80 or ((point >> 6) and 0x3F)
    target[2] = 0x80 or (point and 0x3F)
    return 3
  end
  target[0] = 0xF0 or (point >> 18)
  target[1] = 0x80 or ((point >> 12) and 0x3F)
  target[2] = 0x80 or ((point >> 6) and 0x3F)
  target[3] = 0x80 or (point and 0x3F)
  return 4
end

terra Document:code_point(position : int64, last : int64, width : &int32) : int32
  if position + 6 > last then
    return failed
  end
  var point = self:hexadecimal(position + 2)
  @width = 6
  if point < 0xD800 or point > 0xDFFF then
    return point
  end
  if point > 0xDBFF or position + 12 > last then
    return failed
  end
  if self.input.data[position + 6] ~= [code("\\")] or self.input.data[position + 7] ~= [code("u")] then
    return failed
  end
  var low = self:hexadecimal(position + 8)
  if low < 0xDC00 or low > 0xDFFF then
    return failed
  end
  @width = 12
  return 0x10000 + ((point - 0xD800) << 10) + (low - 0xDC00)
end

local simple_escapes = {
  { '"', 34 }, { "\\", 92 }, { "/", 47 }, { "b", 8 },
  { "f", 12 }, { "n", 10 }, { "r", 13 }, { "t", 9 },
}

local terra simple_escape(byte : uint8) : int32
  escape
    for _, pair in ipairs(simple_escapes) do
      emit quote
        if byte == [code(pair[1])] then
          return [pair[2]]
        end
      end
    end
  end
  return failed
end

terra Document:decode_string(first : int64, last : int64, result : &Slice) : int32
  var target = self.strings:allocate(last - first)
  if target == nil then
    return self:fail("out of memory")
  end
  var size, position = [int64](0), first
  while position < last do
    var byte = self.input.data[position]
    var width, point = 1, [int32](byte)
    if byte == [code("\\")] then
      var kind = self.input.data[position + 1]
      width, point = 2, simple_escape(kind)
      if kind == [code("u")] then
        point = self:code_point(position, last, &width)
      end
      if point == failed then
        self.position = position
        return self:fail("a string contains an invalid escape sequence")
      end
      size = size + encode_utf8(target + size, point)
    else
      target[size] = byte
      size = size + 1
    end
    position = position + width
  end
  @result = Slice { data = target, size = size }
  return 0
end

terra Document:parse_string(result : &Slice) : int32
  self.position = self.position + 1
  var first, has_escape = self.position, false
  if self:scan_string(&has_escape) == failed then
    return failed
  end
  var last = self.position
  @result = Slice { data = self.input.data + first, size = last - first }
  if has_escape and self:decode_string(first, last, result) == failed then
    return failed
  end
  self.position = last + 1
  return 0
end

return json
