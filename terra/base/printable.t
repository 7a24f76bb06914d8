local abi = require("terra.base.abi")
local text = require("terra.base.text")
local utf8 = require("terra.base.utf8")
local C = abi.C
local Slice = text.Slice

local printable = {}

local longest_escape = 8

local unprintable_ranges = {
  { 0x00, 0x1F }, { 0x7F, 0x9F }, { 0x061C, 0x061C }, { 0x200E, 0x200F },
  { 0x2028, 0x202E }, { 0x2066, 0x2069 }, { 0xFEFF, 0xFEFF },
}

local terra is_unprintable(point : int32) : bool
  escape
    for _, range in ipairs(unprintable_ranges) do
      emit quote
        if point >= [range[1]] and point <= [range[2]] then
          return true
        end
      end
    end
  end
  return false
end

terra printable.holds(value : Slice) : bool
  var position : int64 = 0
  while position < value.size do
    var data = value.data + position
    var length = utf8.length(data, value.size - position)
    if length == [utf8.failed] or is_unprintable(utf8.decode(data, length)) then
      return false
    end
    position = position + length
  end
  return true
end

local terra write_character(target : rawstring, data : &uint8, length : int32) : int32
  if length == [utf8.failed] then
    return C.snprintf(target, longest_escape, "\\x%02x", [uint32](data[0]))
  end
  var point = utf8.decode(data, length)
  if is_unprintable(point) then
    return C.snprintf(target, longest_escape, terralib.select(point < 0x100, "\\x%02x", "\\u%04x"), point)
  end
  C.memcpy(target, data, length)
  return length
end

terra printable.copy_into(target : rawstring, capacity : int64, value : Slice)
  var used, position = [int64](0), [int64](0)
  while position < value.size do
    var data = value.data + position
    var length = utf8.length(data, value.size - position)
    var character : int8[longest_escape]
    var size = write_character(&character[0], data, length)
    if used + size >= capacity then
      break
    end
    C.memcpy(target + used, &character[0], size)
    used = used + size
    position = position + terralib.select(length == [utf8.failed], 1, length)
  end
  target[used] = 0
end

terra printable.clean(target : rawstring, capacity : int64)
  var raw : int8[C.GLM_MESSAGE_CAPACITY]
  text.copy_into(&raw[0], C.GLM_MESSAGE_CAPACITY, text.slice(target))
  printable.copy_into(target, capacity, text.slice(&raw[0]))
end

return printable
