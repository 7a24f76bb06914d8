local utf8 = { failed = -1 }

local terra continuation_bytes(data : &uint8, left : int64) : int32
  var lead, low, high = [int32](data[0]), 0x80, 0xBF
  var count = 0
  if lead >= 0xC2 and lead <= 0xDF then
    count = 1
  elseif lead >= 0xE0 and lead <= 0xEF then
    count = 2
  elseif lead >= 0xF0 and lead <= 0xF4 then
    count = 3
  end
  if lead == 0xE0 then low = 0xA0 end
  if lead == 0xED then high = 0x9F end
  if lead == 0xF0 then low = 0x90 end
  if lead == 0xF4 then high = 0x8F end
  if count == 0 or left <= count or data[1] < low or data[1] > high then
    return [utf8.failed]
  end
  for i = 2, count + 1 do
    if data[i] < 0x80 or data[i] > 0xBF then
      return [utf8.failed]
    end
  end
  return count
end

terra utf8.length(data : &uint8, left : int64) : int32
  if data[0] < 0x80 then
    return 1
  end
  var count = continuation_bytes(data, left)
  if count == [utf8.failed] then
    return [utf8.failed]
  end
  return count + 1
end

terra utf8.decode(data : &uint8, length : int32) : int32
  if length == 1 then
    return data[0]
  end
  var point = [int32](data[0]) and ((1 << (7 - length)) - 1)
  for i = 1, length do
    point = (point << 6) or ([int32](data[i]) and 0x3F)
  end
  return point
end

return utf8
