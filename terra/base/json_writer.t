local text = require("terra.base.text")
local utf8 = require("terra.base.utf8")
local abi = require("terra.base.abi")
local C = abi.C
local Slice = text.Slice
local code = string.byte

local replacement = "\\ufffd"

local struct JsonWriter {
  text : text.StringBuilder
  needs_comma : bool
}

terra JsonWriter:init()
  self.text:init()
  self.needs_comma = false
end

terra JsonWriter:free()
  self.text:free()
end

terra JsonWriter:separate()
  if self.needs_comma then
    self.text:append_byte([code(",")])
  end
  self.needs_comma = true
end

terra JsonWriter:open(bracket : uint8)
  self:separate()
  self.text:append_byte(bracket)
  self.needs_comma = false
end

terra JsonWriter:close(bracket : uint8)
  self.text:append_byte(bracket)
  self.needs_comma = true
end

terra JsonWriter:begin_object() self:open([code("{")]) end
terra JsonWriter:end_object() self:close([code("}")]) end
terra JsonWriter:begin_array() self:open([code("[")]) end
terra JsonWriter:end_array() self:close([code("]")]) end

terra JsonWriter:escape_byte(byte : uint8)
  if byte == [code('"')] or byte == [code("\\")] then
    self.text:append_byte([code("\\")])
    self.text:append_byte(byte)
  else
    var escaped : int8[8]
    C.snprintf(&escaped[0], 8, "\\u%04x", [uint32](byte))
    self.text:append_string(&escaped[0])
  end
end

terra JsonWriter:append_escaped(value : Slice)
  var position : int64 = 0
  while position < value.size do
    var byte = value.data[position]
    var length = utf8.length(value.data + position, value.size - position)
    if length == [utf8.failed] then
      self.text:append_string(replacement)
      length = 1
    elseif byte < 32 or byte == 127 or byte == [code('"')] or byte == [code("\\")] then
      self:escape_byte(byte)
    else
      self.text:append(Slice { data = value.data + position, size = length })
    end
    position = position + length
  end
end

terra JsonWriter:slice(value : Slice)
  self:separate()
  self.text:append_byte([code('"')])
  self:append_escaped(value)
  self.text:append_byte([code('"')])
end

terra JsonWriter:string(value : rawstring)
  self:slice(text.slice(value))
end

terra JsonWriter:integer(value : int64)
  self:separate()
  self.text:append_integer(value)
end

terra JsonWriter:boolean(value : bool)
  self:separate()
  if value then
    self.text:append_string("true")
  else
    self.text:append_string("false")
  end
end

terra JsonWriter:key(name : rawstring)
  self:string(name)
  self.text:append_byte([code(":")])
  self.needs_comma = false
end

terra JsonWriter:string_field(name : rawstring, value : rawstring)
  self:key(name)
  self:string(value)
end

terra JsonWriter:integer_field(name : rawstring, value : int64)
  self:key(name)
  self:integer(value)
end

terra JsonWriter:boolean_field(name : rawstring, value : bool)
  self:key(name)
  self:boolean(value)
end

return { JsonWriter = JsonWriter }
