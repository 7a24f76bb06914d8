local abi = require("terra.base.abi")
local C = abi.C

local Event = C.engine_kv_event

return function(PagePool, none)
  terra PagePool:event_of(kind : int32, page : int32) : Event
    var entry = self:at(page)
    var event = Event { kind = kind, has_parent = 0, hash = entry.hash, parent_hash = 0 }
    if entry.parent ~= none then
      event.has_parent = 1
      event.parent_hash = self:at(entry.parent).hash
    end
    return event
  end

  terra PagePool:tell_chain(page : int32)
    var count = 0
    while page ~= none and not self:at(page).is_told do
      self.kv_events.chain[count] = page
      count = count + 1
      page = self:at(page).parent
    end
    for i = 0, count do
      var next = self.kv_events.chain[count - 1 - i]
      self:at(next).is_told = true
      self.kv_events:push(self:event_of(C.ENGINE_KV_STORED, next), self:tokens_of(next))
    end
  end

  terra PagePool:tell_all()
    var ring = &self.kv_events
    ring.first = 0
    ring.size = 0
    ring:push(Event { kind = C.ENGINE_KV_CLEARED, has_parent = 0, hash = 0, parent_hash = 0 }, nil)
    for page = 0, self.num_pages do
      self:at(page).is_told = false
    end
    for page = 0, self.num_pages do
      if self:at(page).is_registered then
        self:tell_chain(page)
      end
    end
  end

  terra PagePool:tell(kind : int32, page : int32)
    var ring = &self.kv_events
    if not ring:is_on() then
      return
    end
    C.pthread_mutex_lock(&ring.mutex)
    if ring.size == ring.capacity then
      self:tell_all()
    else
      ring:push(self:event_of(kind, page), self:tokens_of(page))
    end
    C.pthread_mutex_unlock(&ring.mutex)
  end
end
