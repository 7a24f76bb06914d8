local abi = require("terra.base.abi")
local check = require("terra.base.check")
local C = abi.C

local Event = C.engine_event

local struct EventRing {
  data : &Event
  capacity : int64
  most : int64
  first : int64
  size : int64
}

local terra power_above(count : int64) : int64
  var power : int64 = 64
  while power < count do
    power = power * 2
  end
  return power
end

terra EventRing:init(capacity : int64, most : int64) : bool
  self.capacity = power_above(capacity)
  self.most = terralib.select(most > self.capacity, most, self.capacity)
  self.first = 0
  self.size = 0
  self.data = [&Event](C.malloc(self.capacity * sizeof(Event)))
  return self.data ~= nil
end

terra EventRing:free()
  C.free(self.data)
  self.data = nil
end

terra EventRing:at(index : int64) : &Event
  return &self.data[(self.first + index) and (self.capacity - 1)]
end

terra EventRing:grow(capacity : int64) : bool
  var data = [&Event](C.malloc(capacity * sizeof(Event)))
  if data == nil then
    return false
  end
  for i = 0, self.size do
    data[i] = @self:at(i)
  end
  C.free(self.data)
  self.data = data
  self.capacity = capacity
  self.first = 0
  return true
end

terra EventRing:make_room(count : int64) : bool
  if self.size + count <= self.capacity then
    return true
  end
  var capacity = power_above(self.size + count)
  return capacity <= self.most and self:grow(capacity)
end

terra EventRing:push(event : &Event)
  check.invariant(self.size < self.capacity, "an event was pushed into a full ring buffer")
  @self:at(self.size) = @event
  self.size = self.size + 1
end

terra EventRing:take(events : &Event, capacity : int32) : int32
  var count = terralib.select(self.size < capacity, [int32](self.size), capacity)
  for i = 0, count do
    events[i] = @self:at(i)
  end
  self.first = (self.first + count) and (self.capacity - 1)
  self.size = self.size - count
  return count
end

return { EventRing = EventRing }
