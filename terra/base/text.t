local abi = require("terra.base.abi")
local containers = require("terra.base.containers")
local hash = require("terra.base.hash")
local C = abi.C

local text = {}

local struct Slice {
  data : &uint8
  size : int64
}
text.Slice = Slice

terra text.slice(value : rawstring) : Slice
  return Slice { data = [&uint8](value), size = C.strlen(value) }
end

terra text.equal(a : Slice, b : Slice) : bool
  return a.size == b.size and (a.size == 0 or C.memcmp(a.data, b.data, a.size) == 0)
end

terra text.equals(a : Slice, b : rawstring) : bool
  return text.equal(a, text.slice(b))
end

terra text.ends_with(a : Slice, suffix : rawstring) : bool
  var tail = text.slice(suffix)
  return a.size >= tail.size and text.equal(Slice { data = a.data + (a.size - tail.size), size = tail.size }, tail)
end

terra text.copy_into(target : rawstring, capacity : int64, value : Slice)
  var size = value.size
  if size > capacity - 1 then
    size = capacity - 1
  end
  if size > 0 then
    C.memcpy(target, value.data, size)
  end
  target[size] = 0
end

local chunk_bytes = 65536

local struct Chunk {
  next : &Chunk
  used : int64
  capacity : int64
}

local chunk_header = terralib.sizeof(Chunk)

local struct Arena {
  last : &Chunk
}
text.Arena = Arena

terra Arena:init()
  self.last = nil
end

terra Arena:free()
  while self.last ~= nil do
    var next = self.last.next
    C.free(self.last)
    self.last = next
  end
end

terra Arena:grow(bytes : int64) : bool
  var capacity = bytes
  if capacity < chunk_bytes then
    capacity = chunk_bytes
  end
  var chunk = [&Chunk](C.malloc(chunk_header + capacity))
  if chunk == nil then
    return false
  end
  chunk.next = self.last
  chunk.used = 0
  chunk.capacity = capacity
  self.last = chunk
  return true
end

terra Arena:allocate(bytes : int64) : &uint8
  var rounded = (bytes + 7) / 8 * 8
  if self.last == nil or self.last.capacity - self.last.used < rounded then
    if not self:grow(rounded) then
      return nil
    end
  end
  var memory = [&uint8](self.last) + chunk_header + self.last.used
  self.last.used = self.last.used + rounded
  return memory
end

terra Arena:copy(value : Slice) : rawstring
  var memory = self:allocate(value.size + 1)
  if memory ~= nil then
    text.copy_into([rawstring](memory), value.size + 1, value)
  end
  return [rawstring](memory)
end

local Bytes = containers.Vector(uint8)

local struct StringBuilder {
  bytes : Bytes
  has_failed : bool
}
text.StringBuilder = StringBuilder

terra StringBuilder:init()
  self.bytes:init()
  self.has_failed = false
end

terra StringBuilder:free()
  self.bytes:free()
end

terra StringBuilder:append(value : Slice)
  var size = self.bytes.size
  if not self.bytes:resize(size + value.size) then
    self.has_failed = true
    return
  end
  if value.size > 0 then
    C.memcpy(self.bytes.data + size, value.data, value.size)
  end
end

terra StringBuilder:append_string(value : rawstring)
  self:append(text.slice(value))
end

terra StringBuilder:append_byte(value : uint8)
  if not self.bytes:push(value) then
    self.has_failed = true
  end
end

terra StringBuilder:append_integer(value : int64)
  var digits : int8[32]
  C.snprintf(&digits[0], 32, "%lld", value)
  self:append_string(&digits[0])
end

terra StringBuilder:value() : Slice
  return Slice { data = self.bytes.data, size = self.bytes.size }
end

text.Map = terralib.memoize(function(T)
  local struct Entry {
    key : Slice
    hash : uint64
    value : T
  }
  local struct Map {
    key : hash.Key
    entries : containers.Vector(Entry)
    table : containers.Vector(int32)
  }
  Map.metamethods.__typename = function()
    return "Map(" .. tostring(T) .. ")"
  end

  terra Map:init()
    self.key = hash.process_key()
    self.entries:init()
    self.table:init()
  end

  terra Map:free()
    self.entries:free()
    self.table:free()
  end

  terra Map:clear()
    self.entries:clear()
    self.table:clear()
  end

  terra Map:hash(key : Slice) : uint64
    return hash.siphash13(self.key, key.data, key.size)
  end

  terra Map:position(key : Slice, hash : uint64) : int64
    var mask = self.table.size - 1
    var position = [int64](hash) and mask
    while self.table.data[position] >= 0 do
      var entry = self.entries:at(self.table.data[position])
      if entry.hash == hash and text.equal(entry.key, key) then
        return position
      end
      position = (position + 1) and mask
    end
    return position
  end

  terra Map:rebuild(size : int64) : bool
    if not self.table:resize(size) then
      return false
    end
    for i = 0, size do
      self.table.data[i] = -1
    end
    for i = 0, self.entries.size do
      var entry = self.entries:at(i)
      self.table.data[self:position(entry.key, entry.hash)] = i
    end
    return true
  end

  terra Map:reserve(count : int64) : bool
    var size : int64 = 16
    while size < count * 2 do
      size = size * 2
    end
    return size <= self.table.size or (self.entries:reserve(count) and self:rebuild(size))
  end

  terra Map:find(key : Slice) : &T
    if self.entries.size == 0 then
      return nil
    end
    var index = self.table.data[self:position(key, self:hash(key))]
    if index < 0 then
      return nil
    end
    return &self.entries:at(index).value
  end

  terra Map:insert(key : Slice, value : T) : bool
    if not self:reserve(self.entries.size + 1) then
      return false
    end
    var hashed = self:hash(key)
    var position = self:position(key, hashed)
    if self.table.data[position] >= 0 then
      self.entries:at(self.table.data[position]).value = value
      return true
    end
    if not self.entries:push(Entry { key = key, hash = hashed, value = value }) then
      return false
    end
    self.table.data[position] = [int32](self.entries.size - 1)
    return true
  end

  return Map
end)

return text
