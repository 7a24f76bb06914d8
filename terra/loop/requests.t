local abi = require("terra.base.abi")
local lists = require("terra.scheduling.lists")
local request = require("terra.scheduling.request")
local scheduler = require("terra.scheduling.scheduler")
local sequence = require("terra.scheduling.sequence")
local status = require("terra.base.status")
local threads = require("terra.base.threads")
local C = abi.C

local Sequence = sequence.Sequence
local endless_ns = 1000000000LL * 1000000000LL

return function(Loop)
  local terra engine_thread(argument : &opaque) : &opaque
    var loop = [&Loop](argument)
    loop:run()
    return nil
  end

  terra Loop:start(message : &C.glm_message) : int32
    if self.is_started then
      return C.GLM_OK
    end
    var all : C.sigset_t, previous : C.sigset_t
    C.sigfillset(&all)
    C.pthread_sigmask(C.SIG_SETMASK, &all, &previous)
    var code = C.pthread_create(&self.thread, nil, engine_thread, self)
    C.pthread_sigmask(C.SIG_SETMASK, &previous, nil)
    status.fail_if(message, code ~= 0, C.GLM_INTERNAL_ERROR, "cannot start the engine's thread: %s", C.strerror(code))
    self.is_started = true
    return C.GLM_OK
  end

  terra Loop:prepare_capture(message : &C.glm_message) : int32
    if self.captured_logits ~= nil then
      return C.GLM_OK
    end
    var count = [int64](self.step.shape:max_sample_rows()) * self.step.shape.vocab_size
    self.captured_logits = [&float](C.malloc(count * sizeof(float)))
    status.fail_if(message, self.captured_logits == nil, C.GLM_OUT_OF_MEMORY, "not enough host memory for %d rows of logits", self.step.shape:max_sample_rows())
    return C.GLM_OK
  end

  terra Loop:check_usable(message : &C.glm_message) : int32
    status.fail_if(message, not self.is_usable, C.GLM_DEVICE_ERROR, "the device is lost and the engine cannot continue: %.900s", &self.failure.text[0])
    return C.GLM_OK
  end

  terra Loop:check_queue(message : &C.glm_message) : int32
    status.fail_if(message, self.live.size >= self.max_live, C.GLM_QUEUE_FULL, "the queue is full: %lld requests are running or waiting (max_batch %d, max_queue %d)", [int64](self.live.size), self.options.max_batch, self.options.max_queue)
    return C.GLM_OK
  end

  terra Loop:enqueue(item : &Sequence, message : &C.glm_message) : int32
    status.try(self:check_usable(message))
    var limits = self:limits()
    var num_pages = item:pages_for(item:most_tokens_computed(), limits.page_size)
    status.try(request.check_pool(num_pages, &limits, message))
    status.try(self:check_queue(message))
    if item.logits_capacity > 0 then
      status.try(self:prepare_capture(message))
    end
    status.try(self:start(message))
    item.id = self.next_id
    self.next_id = self.next_id + 1
    lists.append(&self.submissions, item)
    lists.append(&self.live, item)
    if item.masks:is_on() then
      lists.append(&self.masked, item)
    end
    C.pthread_cond_signal(&self.work)
    return C.GLM_OK
  end

  terra Loop:submit(wanted : &C.engine_request, request_id : &uint64, message : &C.glm_message) : int32
    status.clear(message)
    self:lock()
    var limits = self:limits()
    self:unlock()
    var item : &Sequence
    status.try(request.copy(wanted, self.model, &limits, &item, message))
    self:lock()
    var code = self:enqueue(item, message)
    if code == C.GLM_OK and request_id ~= nil then
      @request_id = item.id
    end
    self:unlock()
    if code ~= C.GLM_OK then
      request.delete_sequence(item)
    end
    return code
  end

  terra Loop:order(request_id : uint64, is_cancel : bool, message : &C.glm_message) : int32
    status.clear(message)
    self:lock()
    var item = self:find_live(request_id)
    if item == nil then
      self:unlock()
      return status.fail(message, C.GLM_NOT_FOUND, "request %llu is unknown or has ended", request_id)
    end
    if is_cancel then
      item.cancel_requested = true
    else
      item.preempt_requested = true
    end
    self.has_orders = true
    C.pthread_cond_signal(&self.work)
    self:unlock()
    return C.GLM_OK
  end

  terra Loop:cancel(request_id : uint64, message : &C.glm_message) : int32
    return self:order(request_id, true, message)
  end

  terra Loop:preempt(request_id : uint64, message : &C.glm_message) : int32
    return self:order(request_id, false, message)
  end

  terra Loop:poll(target : &C.engine_event, capacity : int32, count : &int32) : int32
    if count == nil or capacity < 0 or (target == nil and capacity > 0) then
      return C.GLM_INVALID_ARGUMENT
    end
    self:lock()
    @count = self.events:take(target, capacity)
    if self.events.size == 0 then
      var value : uint64
      C.read(self.event_fd, &value, sizeof(uint64))
    end
    C.pthread_cond_signal(&self.work)
    self:unlock()
    return C.GLM_OK
  end

  terra Loop:wait(timeout_ns : int64) : int32
    var time_ns : int64 = 0
    if timeout_ns >= 0 and timeout_ns < endless_ns then
      time_ns = threads.now_ns() + timeout_ns
    end
    self:lock()
    var is_in_time = true
    while self.events.size == 0 and is_in_time do
      is_in_time = threads.wait_until(&self.ready, &self.mutex, time_ns)
    end
    var has_events = self.events.size > 0
    self:unlock()
    if has_events then
      return C.GLM_OK
    end
    return C.GLM_NOT_FOUND
  end

  terra Loop:take_kv_events(target : &C.engine_kv_event, tokens : &int32, capacity : int32, count : &int32) : int32
    var ring = &self.scheduler.pool.kv_events
    if not ring:is_on() then
      return C.GLM_NOT_SUPPORTED
    end
    @count = ring:take(target, tokens, capacity)
    return C.GLM_OK
  end

  terra Loop:kv_event_fd() : int32
    var ring = &self.scheduler.pool.kv_events
    if not ring:is_on() then
      return -1
    end
    return ring.event_fd
  end

  terra Loop:info(target : &C.engine_info)
    self:lock()
    var p = &self.published
    target.total_pages = p.num_pages
    target.free_pages = p.num_free
    target.cached_pages = p.num_cached
    target.owned_pages = p.num_owned
    target.live_requests = self.live.size
    target.waiting_requests = p.num_waiting + self.submissions.size
    target.preempted_requests = p.num_preempted
    target.is_usable = 0
    if self.is_usable then
      target.is_usable = 1
    end
    escape
      for _, counter in ipairs(scheduler.Counters.entries) do
        emit quote target.[counter.field] = p.counters.[counter.field] end
      end
    end
    target.num_evictions = p.num_evictions
    target.step_ns = p.step_ns
    target.launch_ns = p.launch_ns
    target.plan_ns = p.plan_ns
    target.mask_wait_ns = p.mask_wait_ns
    self:unlock()
  end
end
