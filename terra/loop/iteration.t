local abi = require("terra.base.abi")
local check = require("terra.base.check")
local lists = require("terra.scheduling.lists")
local request = require("terra.scheduling.request")
local sequence = require("terra.scheduling.sequence")
local threads = require("terra.base.threads")
local C = abi.C

local Sequence = sequence.Sequence

return function(Loop)
  terra Loop:has_work() : bool
    return self.is_active or self.has_orders or self.has_masks or self.submissions.size > 0
      or (self.wake_ns > 0 and threads.now_ns() >= self.wake_ns)
  end

  terra Loop:next_look(now : int64, has_room : bool) : int64
    if now < self.plan_due_ns then
      return self.plan_due_ns
    end
    return terralib.select(has_room, self.wake_ns, 0LL)
  end

  terra Loop:await_work() : bool
    self:lock()
    var has_room = self.events:make_room(self:most_events())
    var now = threads.now_ns()
    while not self.is_stopping and (now < self.plan_due_ns or not (has_room and self:has_work())) do
      threads.wait_until(&self.work, &self.mutex, self:next_look(now, has_room))
      has_room = self.events:make_room(self:most_events())
      now = threads.now_ns()
    end
    var stopping = self.is_stopping
    self:unlock()
    return not stopping
  end

  terra Loop:obey(item : &Sequence)
    if item:is_ended() then
      return
    end
    if item.cancel_requested then
      self.scheduler:finish(item, C.ENGINE_FINISH_CANCELLED)
    elseif item.preempt_requested and item.state == [sequence.RUNNING] then
      self.scheduler:preempt(item)
    end
    item.preempt_requested = false
  end

  terra Loop:obey_all()
    for i = 0, self.live.size do
      self:obey(self.live.data[i])
    end
    self.has_orders = false
  end

  terra Loop:take_orders()
    self.scheduler.now_ns = threads.now_ns()
    self:lock()
    for i = 0, self.submissions.size do
      self.scheduler:add(self.submissions.data[i])
    end
    self.published.num_waiting = self.published.num_waiting + self.submissions.size
    self.submissions:clear()
    self:take_masks()
    if self.has_orders and not self.scheduler:is_in_flight() then
      self:obey_all()
    end
    self:unlock()
  end

  terra Loop:check_ranks()
    if self.ranks.is_usable then
      return
    end
    self.scheduler:fail_all(C.GLM_DEVICE_ERROR, &self.failure.text[0])
    if self.is_usable then
      self:lock()
      self.is_usable = false
      self:unlock()
    end
  end

  terra Loop:launch(message : &C.glm_message) : int32
    self.step.logits, self.step.draft_logits = nil, nil
    if self.scheduler:wants_logits() then
      var most_values = [int64](self.step.shape.max_logit_rows) * self.step.shape.vocab_size
      self.step.logits, self.step.draft_logits = self.captured_logits, self.captured_logits + most_values
    end
    var begin = threads.now_ns()
    var code = self.ranks:launch(&self.step, message)
    var spent = threads.now_ns() - begin
    self.step_ns = self.step_ns + spent
    self.launch_ns = self.launch_ns + spent
    if code == C.GLM_OK then
      self.scheduler:table_uploaded()
      self:describe_step(spent)
    end
    return code
  end

  terra Loop:land()
    self:sample()
    if not self.scheduler:is_in_flight() then
      return
    end
    var message : C.glm_message
    message.text[0] = 0
    var begin = threads.now_ns()
    var code = self.ranks:land(&self.step.outputs, &message)
    var now = threads.now_ns()
    self.step_ns = self.step_ns + (now - begin)
    if code == C.GLM_OK then
      self:record_step(now)
      self.scheduler:land(now)
    else
      self.scheduler.now_ns = now
      self.failure = message
      self.scheduler:fail_landing(code, &message.text[0])
    end
  end

  terra Loop:execute()
    var message : C.glm_message
    message.text[0] = 0
    var code = self:launch(&message)
    if code ~= C.GLM_OK and not self.ranks.is_usable then
      self.scheduler:fail_landing(code, &message.text[0])
    else
      self:land()
    end
    if code ~= C.GLM_OK then
      self.failure = message
      self.scheduler:fail_step(code, &message.text[0])
      return
    end
    self.scheduler:launch()
    self.launched_step = self.planned_step
    self.launched_ns = threads.now_ns()
    if self:lands_at_once() and not self.scheduler.is_unsampled then
      self:land()
    end
  end

  terra Loop:lands_at_once() : bool
    return not self.scheduler.options.plans_ahead or self.is_profiled or self.step.logits ~= nil
  end

  terra Loop:remove_ended()
    for i = 0, self.scheduler.ended.size do
      lists.remove(&self.live, self.scheduler.ended.data[i])
      lists.remove(&self.masked, self.scheduler.ended.data[i])
    end
  end

  terra Loop:announce()
    var one : uint64 = 1
    C.write(self.event_fd, &one, sizeof(uint64))
    C.pthread_cond_broadcast(&self.ready)
  end

  terra Loop:publish_events()
    var staged = &self.scheduler.events
    var count : int64 = 0
    while count < staged.size and self.events:make_room(1) do
      self.events:push(&staged.data[count])
      count = count + 1
    end
    C.memmove(staged.data, staged.data + count, (staged.size - count) * sizeof(C.engine_event))
    staged.size = staged.size - count
    if count > 0 then
      self:announce()
    end
  end

  terra Loop:next_wake() : int64
    var deadline = self.scheduler:nearest_deadline()
    if self.mask_due_ns > 0 and (deadline == 0 or self.mask_due_ns < deadline) then
      return self.mask_due_ns
    end
    return deadline
  end

  terra Loop:next_plan() : int64
    if not self.scheduler:is_in_flight() or self.scheduler.is_unsampled then
      return 0
    end
    return self.launched_ns + self.scheduler.options.costs:planning_delay(self.launched_step.expected_ns)
  end

  terra Loop:publish()
    var s = &self.scheduler
    check.invariant(s:is_consistent(), "pages, sequences and page tables are inconsistent")
    self:lock()
    self:publish_events()
    self:remove_ended()
    self:publish_outputs()
    self:publish_counters()
    self.wake_ns = self:next_wake()
    self.plan_due_ns = self:next_plan()
    self:unlock()
    for i = 0, s.ended.size do
      request.delete_sequence(s.ended.data[i])
    end
    s.ended:clear()
  end

  terra Loop:plan() : bool
    var begin = threads.now_ns()
    self.scheduler:expire(begin)
    var has_step = self.scheduler:plan()
    self.last_plan_ns = threads.now_ns() - begin
    self.plan_ns = self.plan_ns + self.last_plan_ns
    return has_step
  end

  terra Loop:advance_planned(has_step : bool)
    var can_execute = self:perform_transfers() == 0 and has_step
    if can_execute then
      self:execute()
    else
      self:land()
    end
  end

  terra Loop:has_pending_orders() : bool
    self:lock()
    var pending = self.has_orders
    self:unlock()
    return pending
  end

  terra Loop:make_step()
    var num_preemptions = self.scheduler.counters.num_preemptions
    var was_in_flight = self.scheduler:is_in_flight()
    var has_step = self:plan()
    self.is_active = has_step or was_in_flight or self.scheduler:has_transfers() or self.scheduler.counters.num_preemptions > num_preemptions
    self:advance_planned(has_step)
  end

  terra Loop:resume_launched()
    self.is_active = not self:waits_for_masks()
    if not self.is_active then
      return
    end
    self:sample()
    if self:lands_at_once() then
      self:land()
    else
      self:make_step()
    end
  end

  terra Loop:iterate()
    if self:has_pending_orders() then
      self:land()
    end
    self:take_orders()
    self:check_ranks()
    if self.scheduler.is_unsampled then
      self:resume_launched()
    else
      self:make_step()
    end
    self:check_ranks()
    self:publish()
  end

  terra Loop:enter_turn()
    self.turnstile:enter()
    self:land()
  end

  terra Loop:run()
    while self:await_work() do
      self.turnstile:enter()
      self:iterate()
      self.turnstile:leave()
    end
    self:enter_turn()
    self.turnstile:leave()
  end

  terra Loop:wake()
    self:lock()
    self.has_orders = true
    C.pthread_cond_signal(&self.work)
    self:unlock()
  end
end
