local abi = require("terra.base.abi")
local status = require("terra.base.status")
local C = abi.C

return function(Loop)
  terra Loop:check_live_fit(num_pages : int32, message : &C.glm_message) : int32
    for i = 0, self.live.size do
      var item = self.live.data[i]
      var needed = item:pages_for(item:most_tokens_computed(), self.options.page_size)
      status.refuse(message, needed > num_pages, "a pool of %d pages is too small for request %llu, which may need %d", num_pages, item.id, needed)
    end
    return C.GLM_OK
  end

  terra Loop:check_resize(num_pages : int32, message : &C.glm_message) : int32
    status.refuse(message, num_pages < 0 or num_pages > self.options.num_pages, "num_pages is %d; expected 0 to %d (the number planned at start)", num_pages, self.options.num_pages)
    var held = self.scheduler:count_references(&self.scheduler.states)
    status.fail_if(message, held > num_pages, C.GLM_OUT_OF_MEMORY, "a pool of %d pages is too small for the %lld pages in use by states", num_pages, held)
    status.fail_if(message, not self.events:make_room(2 * self.max_live), C.GLM_QUEUE_FULL, "%lld events are waiting to be polled; poll them, then resize the pool", self.events.size)
    status.try(self:check_usable(message))
    return self:check_live_fit(num_pages, message)
  end

  terra Loop:begin_resize(num_pages : int32, message : &C.glm_message) : int32
    self:lock()
    var code = self:check_resize(num_pages, message)
    if code == C.GLM_OK and num_pages < self.published.num_pages then
      self.published.num_pages = num_pages
    end
    self:unlock()
    return code
  end

  terra Loop:resize_in_turn(num_pages : int32, message : &C.glm_message) : int32
    status.try(self:begin_resize(num_pages, message))
    status.fail_if(message, not self.scheduler:preempt_down_to(num_pages), C.GLM_OUT_OF_MEMORY, "%d pages are in use, so the pool cannot shrink to %d", self.scheduler.pool.num_owned, num_pages)
    self:perform_transfers()
    var pool = &self.scheduler.pool
    var num_moves = pool:plan_resize(num_pages)
    if num_moves > 0 then
      status.try(self.ranks:copy_pages(num_moves, pool.move_sources, pool.move_destinations, message))
    end
    self.scheduler:commit_resize(num_pages, num_moves)
    return C.GLM_OK
  end

  terra Loop:resize_pool(num_pages : int32, message : &C.glm_message) : int32
    return self:in_turn(message, self:resize_in_turn(num_pages, message))
  end
end
