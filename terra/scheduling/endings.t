local abi = require("terra.base.abi")
local check = require("terra.base.check")
local lists = require("terra.scheduling.lists")
local sequence = require("terra.scheduling.sequence")
local C = abi.C

local Sequence = sequence.Sequence
local SequenceList = lists.SequenceList
local append, remove, insert_in_order = lists.append, lists.remove, lists.insert_in_order

return function(Scheduler)
  terra Scheduler:new_event(item : &Sequence, kind : int32) : &C.engine_event
    check.invariant(self.events.size < self.events.capacity, "more events were created than slots reserved")
    var event = &self.events.data[self.events.size]
    self.events.size = self.events.size + 1
    C.memset(event, 0, sizeof(C.engine_event))
    event.request_id = item.id
    event.kind = kind
    event.token_id = -1
    event.index = item:num_outputs()
    event.prompt_tokens = item.prompt_length
    event.cached_tokens = item.num_cached_tokens
    event.num_logprobs = -1
    event.time_ns = self.now_ns
    event.started_ns = item.started_ns
    event.num_draft_tokens = item.num_draft_tokens
    event.num_accepted_tokens = item.num_accepted_tokens
    event.num_predicted_tokens = item.lookup.num_predicted
    return event
  end

  terra Scheduler:leave_lists(item : &Sequence)
    if item.state == [sequence.RUNNING] then
      remove(&self.running, item)
    else
      remove(&self.waiting, item)
    end
    if item.state == [sequence.PREEMPTED] then
      self.num_preempted = self.num_preempted - 1
    end
  end

  terra Scheduler:retire(item : &Sequence)
    check.invariant(item.state ~= [sequence.ENDED], "a sequence ended twice")
    self:forget(item)
    self:leave_lists(item)
    self:release_pages(item)
    self:give_row(item)
    if item.deadline_ns > 0 then
      self.num_deadlines = self.num_deadlines - 1
    end
    item.state = [sequence.ENDED]
    append(&self.ended, item)
  end

  terra Scheduler:finish(item : &Sequence, reason : int32)
    var event = self:new_event(item, C.ENGINE_EVENT_FINISHED)
    event.finish_reason = reason
    self.counters.num_finished = self.counters.num_finished + 1
    self:retire(item)
  end

  terra Scheduler:fail(item : &Sequence, code : int32, text : rawstring)
    var event = self:new_event(item, C.ENGINE_EVENT_FAILED)
    event.finish_reason = C.ENGINE_FINISH_ERROR
    event.status = code
    C.snprintf(&event.message[0], C.ENGINE_EVENT_MESSAGE_CAPACITY, "%s", text)
    self:retire(item)
  end

  terra Scheduler:fail_all(code : int32, text : rawstring)
    while self.running.size > 0 do
      self:fail(@self.running:last(), code, text)
    end
    while self.waiting.size > 0 do
      self:fail(@self.waiting:last(), code, text)
    end
  end

  terra Scheduler:preempt(item : &Sequence)
    check.invariant(item.state == [sequence.RUNNING], "a sequence that was not running was preempted")
    check.invariant(self.launched.size == 0, "a sequence was preempted while a forward pass was in flight")
    var num_saved = self:pages_for(item.num_computed)
    item.saved_pages:clear()
    item.saved_pages:append(item.pages.data, num_saved)
    remove(&self.running, item)
    self:release_pages(item)
    self:give_row(item)
    if num_saved > 0 then
      append(&self.saves, item)
    end
    item.state = [sequence.PREEMPTED]
    item.blocked_version = -1
    insert_in_order(&self.waiting, item)
    self.num_preempted = self.num_preempted + 1
    self.counters.num_preemptions = self.counters.num_preemptions + 1
  end

  terra Scheduler:preempt_down_to(num_pages : int32) : bool
    while self.pool.num_owned > num_pages and self.running.size > 0 do
      self:preempt(@self.running:last())
    end
    return self.pool.num_owned <= num_pages
  end

  terra Scheduler:expire_list(list : &SequenceList)
    var i : int64 = 0
    while i < list.size do
      var item = list.data[i]
      if item.deadline_ns > 0 and item.deadline_ns <= self.now_ns then
        self:finish(item, C.ENGINE_FINISH_DEADLINE)
      else
        i = i + 1
      end
    end
  end

  terra Scheduler:expire(now_ns : int64)
    self.now_ns = now_ns
    if self.num_deadlines > 0 then
      self:expire_list(&self.running)
      self:expire_list(&self.waiting)
    end
  end

  terra Scheduler:nearest_deadline() : int64
    var nearest : int64 = 0
    if self.num_deadlines == 0 then
      return nearest
    end
    for i = 0, self.running.size + self.waiting.size do
      var item : &Sequence
      if i < self.running.size then
        item = self.running.data[i]
      else
        item = self.waiting.data[i - self.running.size]
      end
      if item.deadline_ns > 0 and (nearest == 0 or item.deadline_ns < nearest) then
        nearest = item.deadline_ns
      end
    end
    return nearest
  end
end
