local abi = require("terra.base.abi")
local C = abi.C

local hash = {}

local struct Key {
  words : uint64[2]
}
hash.Key = Key

terra hash.process_key() : Key
  return @[&Key](C.getauxval(C.AT_RANDOM))
end

local struct State {
  v0 : uint64
  v1 : uint64
  v2 : uint64
  v3 : uint64
}

local terra rotate(word : uint64, count : uint64) : uint64
  return (word << count) or (word >> (64 - count))
end

terra State:init(key : Key)
  self.v0 = key.words[0] ^ 0x736F6D6570736575ULL
  self.v1 = key.words[1] ^ 0x646F72616E646F6DULL
  self.v2 = key.words[0] ^ 0x6C7967656E657261ULL
  self.v3 = key.words[1] ^ 0x7465646279746573ULL
end

terra State:round()
  self.v0, self.v2 = self.v0 + self.v1, self.v2 + self.v3
  self.v1, self.v3 = rotate(self.v1, 13) ^ self.v0, rotate(self.v3, 16) ^ self.v2
  self.v0 = rotate(self.v0, 32)
  self.v2, self.v0 = self.v2 + self.v1, self.v0 + self.v3
  self.v1, self.v3 = rotate(self.v1, 17) ^ self.v2, rotate(self.v3, 21) ^ self.v0
  self.v2 = rotate(self.v2, 32)
end

terra State:add(word : uint64)
  self.v3 = self.v3 ^ word
  self:round()
  self.v0 = self.v0 ^ word
end

terra State:finish() : uint64
  self.v2 = self.v2 ^ 0xFF
  for i = 0, 3 do
    self:round()
  end
  return self.v0 ^ self.v1 ^ self.v2 ^ self.v3
end

terra hash.siphash13(key : Key, data : &uint8, size : int64) : uint64
  var state : State
  state:init(key)
  var position : int64 = 0
  while size - position >= 8 do
    var word : uint64
    C.memcpy(&word, data + position, 8)
    state:add(word)
    position = position + 8
  end
  var last : uint64 = 0
  C.memcpy(&last, data + position, size - position)
  state:add(last or ([uint64](size) << 56))
  return state:finish()
end

return hash
