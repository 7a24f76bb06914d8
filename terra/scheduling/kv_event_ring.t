local abi = require("terra.base.abi")
local check = require("terra.base.check")
local status = require("terra.base.status")
local C = abi.C

local Event = C.engine_kv_event

local struct KvEventRing {
  capacity : int64
  first : int64
  size : int64
  page_size : int32
  event_fd : int32
  events : &Event
  tokens : &int32
  chain : &int32
  mutex : C.pthread_mutex_t
}

terra KvEventRing:init(num_pages : int32, page_size : int32, message : &C.glm_message) : int32
  C.memset(self, 0, sizeof(KvEventRing))
  C.pthread_mutex_init(&self.mutex, nil)
  self.capacity = 2 * [int64](num_pages) + 2
  self.page_size = page_size
  self.events = [&Event](C.malloc(self.capacity * sizeof(Event)))
  self.tokens = [&int32](C.malloc(self.capacity * page_size * sizeof(int32)))
  self.chain = [&int32](C.malloc([int64](num_pages) * sizeof(int32) + 1))
  self.event_fd = C.eventfd(0, C.EFD_NONBLOCK or C.EFD_CLOEXEC)
  if self.events == nil or self.tokens == nil or self.chain == nil then
    return status.fail(message, C.GLM_OUT_OF_MEMORY, "not enough host memory to record KV events for %d pages of %d tokens", num_pages, page_size)
  elseif self.event_fd < 0 then
    return status.fail(message, C.GLM_IO_ERROR, "cannot create an eventfd: %s", C.strerror(@C.__errno_location()))
  end
  return C.GLM_OK
end

terra KvEventRing:is_on() : bool
  return self.capacity > 0
end

terra KvEventRing:free()
  if not self:is_on() then
    return
  end
  if self.event_fd >= 0 then
    C.close(self.event_fd)
  end
  C.free(self.events)
  C.free(self.tokens)
  C.free(self.chain)
  C.pthread_mutex_destroy(&self.mutex)
end

terra KvEventRing:place(index : int64) : int64
  return (self.first + index) % self.capacity
end

terra KvEventRing:push(event : Event, tokens : &int32)
  check.invariant(self.size < self.capacity, "a KV event was pushed into a full ring buffer")
  var place = self:place(self.size)
  self.events[place] = event
  if tokens ~= nil then
    C.memcpy(self.tokens + place * self.page_size, tokens, self.page_size * sizeof(int32))
  end
  self.size = self.size + 1
  if self.size == 1 then
    var one : uint64 = 1
    C.write(self.event_fd, &one, sizeof(uint64))
  end
end

terra KvEventRing:take(events : &Event, tokens : &int32, capacity : int32) : int32
  C.pthread_mutex_lock(&self.mutex)
  var count = terralib.select(self.size < capacity, [int32](self.size), capacity)
  for i = 0, count do
    var place = self:place(i)
    events[i] = self.events[place]
    C.memcpy(tokens + [int64](i) * self.page_size, self.tokens + place * self.page_size, self.page_size * sizeof(int32))
  end
  self.first = self:place(count)
  self.size = self.size - count
  if self.size == 0 then
    var value : uint64
    C.read(self.event_fd, &value, sizeof(uint64))
  end
  C.pthread_mutex_unlock(&self.mutex)
  return count
end

return { KvEventRing = KvEventRing }
