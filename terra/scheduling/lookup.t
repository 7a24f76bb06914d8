local abi = require("terra.base.abi")
local containers = require("terra.base.containers")
local numbers = require("terra.base.numbers")
local C = abi.C

local shortest_match = 3
local longest_match = 32
local most_candidates = 16
local most_bits = 16
local none = -1

local smaller = numbers.smaller(int32)

local struct Lookup {
  text : containers.Vector(int32)
  previous : containers.Vector(int32)
  heads : &int32
  shift : uint64
  border : int32
  source : int32
  num_predicted : int32
}

terra Lookup:init(num_tokens : int64) : bool
  C.memset(self, 0, sizeof(Lookup))
  self.source = none
  var bits : uint64 = 4
  while bits < most_bits and (1LL << bits) < num_tokens do
    bits = bits + 1
  end
  self.shift = 64 - bits
  self.heads = [&int32](C.calloc(1LL << bits, sizeof(int32)))
  return self.heads ~= nil and self.text:reserve(num_tokens) and self.previous:resize(num_tokens + 1)
end

terra Lookup:free()
  self.text:free()
  self.previous:free()
  C.free(self.heads)
  self.heads = nil
end

terra Lookup:is_on() : bool
  return self.heads ~= nil
end

terra Lookup:head(place : int64, in_prediction : bool) : &int32
  var last = self.text.data + place
  var key = ([uint64](last[-3]) << 42) ^ ([uint64](last[-2]) << 21) ^ [uint64](last[-1])
  if in_prediction then
    key = not key
  end
  return &self.heads[(key * 0x9E3779B97F4A7C15ULL) >> self.shift]
end

terra Lookup:num_before(place : int32) : int32
  return terralib.select(place > self.border, place - self.border, place)
end

terra Lookup:index_end()
  var place = [int32](self.text.size)
  if place ~= self.border and self:num_before(place) >= shortest_match then
    var head = self:head(place, place < self.border)
    self.previous.data[place] = @head
    @head = place
  end
end

terra Lookup:append(token : int32)
  self:index_end()
  self.text:push(token)
end

terra Lookup:match_length(place : int32) : int32
  var finish = [int32](self.text.size)
  var most = smaller(longest_match, smaller(self:num_before(place), self:num_before(finish)))
  var length = 0
  while length < most and self.text.data[place - 1 - length] == self.text.data[finish - 1 - length] do
    length = length + 1
  end
  return length
end

terra Lookup:choose(place : int32, longest : &int32)
  var left = most_candidates
  while place > 0 and left > 0 do
    var length = self:match_length(place)
    if length > @longest then
      self.source = place
      @longest = length
    end
    place = self.previous.data[place]
    left = left - 1
  end
end

terra Lookup:search()
  self.source = none
  if self.text.size - self.border < shortest_match then
    return
  end
  var longest = shortest_match - 1
  if self.border > 0 then
    self:choose(@self:head(self.text.size, true), &longest)
  end
  self:choose(@self:head(self.text.size, false), &longest)
end

terra Lookup:predict(tokens : &int32, num_tokens : int32)
  self.border = num_tokens
  for i = 0, num_tokens do
    self:append(tokens[i])
  end
end

terra Lookup:read(tokens : &int32, num_tokens : int32)
  for i = 0, num_tokens do
    self:append(tokens[i])
  end
  if self.border > 0 then
    self.source = 0
  else
    self:search()
  end
end

terra Lookup:push(token : int32)
  var follows = self.source >= 0 and self.text.data[self.source] == token
  if follows and self.source < self.border then
    self.num_predicted = self.num_predicted + 1
  end
  self:append(token)
  self.source = self.source + 1
  if not follows or self.source == self.border then
    self:search()
  end
end

terra Lookup:continuation(target : &int32, most : int32) : int32
  if self.source < 0 then
    return 0
  elseif self.source < self.border then
    most = smaller(most, self.border - self.source)
  end
  var size = [int32](self.text.size)
  for i = 0, most do
    var place = self.source + i
    if place < size then
      target[i] = self.text.data[place]
    else
      target[i] = target[place - size]
    end
  end
  return most
end

return { Lookup = Lookup }
