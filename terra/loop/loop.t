local abi = require("terra.base.abi")
local batch = require("terra.scheduling.batch")
local config = require("terra.checkpoint.config")
local events = require("terra.loop.events")
local lists = require("terra.scheduling.lists")
local request = require("terra.scheduling.request")
local scheduler = require("terra.scheduling.scheduler")
local status = require("terra.base.status")
local step_ring = require("terra.loop.step_ring")
local threads = require("terra.base.threads")
local C = abi.C

local event_capacity_most = 65536

local struct Published {
  counters : scheduler.Counters
  num_pages : int32
  num_free : int32
  num_owned : int32
  num_cached : int32
  num_evictions : int64
  num_waiting : int32
  num_running : int32
  num_preempted : int32
  step_ns : int64
  plan_ns : int64
  launch_ns : int64
  mask_wait_ns : int64
}

local Loop = terralib.memoize(function(RankGroup)
  local struct Loop {
    ranks : &RankGroup
    model : &config.ModelConfig
    options : C.engine_options
    scheduler : scheduler.Scheduler
    step : batch.StepPlan
    turnstile : threads.Turnstile
    mutex : C.pthread_mutex_t
    work : C.pthread_cond_t
    ready : C.pthread_cond_t
    thread : C.pthread_t
    is_started : bool
    is_stopping : bool
    is_active : bool
    has_orders : bool
    has_masks : bool
    is_usable : bool
    failure : C.glm_message
    submissions : lists.SequenceList
    live : lists.SequenceList
    masked : lists.SequenceList
    max_live : int32
    events : events.EventRing
    event_fd : int32
    next_id : uint64
    wake_ns : int64
    captured_logits : &float
    published : Published
    step_ns : int64
    plan_ns : int64
    launch_ns : int64
    mask_wait_ns : int64
    launched_ns : int64
    plan_due_ns : int64
    landed_ns : int64
    decode_ns : int64
    mask_due_ns : int64
    is_overdue : bool
    last_plan_ns : int64
    planned_step : C.engine_step
    launched_step : C.engine_step
    steps : step_ring.StepRing
    is_profiled : bool
  }

  terra Loop:lock()
    C.pthread_mutex_lock(&self.mutex)
  end

  terra Loop:unlock()
    C.pthread_mutex_unlock(&self.mutex)
  end

  terra Loop:limits() : request.Limits
    return request.Limits {
      vocab_size = self.model.vocab_size,
      looks_up = self.options.speculate == C.ENGINE_SPECULATE_LOOKUP or self.options.speculate == C.ENGINE_SPECULATE_AUTO,
      drafts_with_layer = self.step.shape:drafts_with_layer(),
      masks_per_request = 2 * self.step.shape.rows_per_sequence - 1,
      max_seq = self.options.max_seq,
      max_biases = self.step.shape.max_biases,
      page_size = self.options.page_size,
      num_pages = self.published.num_pages,
    }
  end

  terra Loop:publish_counters()
    var s, p = &self.scheduler, &self.published
    p.counters = s.counters
    p.num_pages = s.pool.num_pages
    p.num_free = s.pool.num_free
    p.num_owned = s.pool.num_owned
    p.num_cached = s.pool.num_cached
    p.num_evictions = s.pool.num_evictions
    p.num_waiting = s.waiting.size
    p.num_running = s.running.size
    p.num_preempted = s.num_preempted
    p.step_ns = self.step_ns
    p.launch_ns = self.launch_ns
    p.plan_ns = self.plan_ns
    p.mask_wait_ns = self.mask_wait_ns
  end

  terra Loop:most_events() : int64
    return 2 * [int64](self.max_live) + self.step.shape.max_logit_rows
  end

  terra Loop:init_lists(message : &C.glm_message) : int32
    var needed = self:most_events()
    var is_ready = self.steps:init() and self.submissions:reserve(self.max_live) and self.live:reserve(self.max_live) and self.masked:reserve(self.max_live)
      and self.events:init(needed, terralib.select(4 * needed > event_capacity_most, 4 * needed, event_capacity_most))
    status.fail_if(message, not is_ready, C.GLM_OUT_OF_MEMORY, "not enough host memory to queue %d requests", self.max_live)
    self.event_fd = C.eventfd(0, C.EFD_NONBLOCK or C.EFD_CLOEXEC)
    status.fail_if(message, self.event_fd < 0, C.GLM_IO_ERROR, "cannot create an eventfd: %s", C.strerror(@C.__errno_location()))
    return C.GLM_OK
  end

  terra Loop:init(model : &config.ModelConfig, options : &scheduler.SchedulerOptions, step : &batch.StepPlan, ranks : &RankGroup, message : &C.glm_message) : int32
    C.memset(self, 0, sizeof(Loop))
    self.model = model
    self.options = options.engine
    self.max_live = options:max_live()
    self.step = @step
    self.ranks = ranks
    self.event_fd = -1
    self.next_id = 1
    self.is_usable = true
    self.turnstile:init()
    C.pthread_mutex_init(&self.mutex, nil)
    threads.init_condition(&self.work)
    threads.init_condition(&self.ready)
    status.try(self:init_lists(message))
    status.try(self.scheduler:init(options, &self.step, message))
    self:publish_counters()
    return C.GLM_OK
  end

  terra Loop:stop()
    if not self.is_started then
      return
    end
    self:lock()
    self.is_stopping = true
    C.pthread_cond_broadcast(&self.work)
    self:unlock()
    C.pthread_join(self.thread, nil)
    self.is_started = false
  end

  terra Loop:free()
    if self.ranks == nil then
      return
    end
    self:stop()
    for i = 0, self.submissions.size do
      request.delete_sequence(self.submissions.data[i])
    end
    self.submissions:free()
    self.live:free()
    self.masked:free()
    self.scheduler:free()
    self.events:free()
    self.steps:free()
    if self.event_fd >= 0 then
      C.close(self.event_fd)
    end
    C.free(self.captured_logits)
    C.pthread_cond_destroy(&self.work)
    C.pthread_cond_destroy(&self.ready)
    C.pthread_mutex_destroy(&self.mutex)
    self.turnstile:free()
  end

  require("terra.loop.measures")(Loop)
  require("terra.loop.masks")(Loop)
  require("terra.loop.transfers")(Loop)
  require("terra.loop.iteration")(Loop)
  require("terra.loop.requests")(Loop)
  require("terra.loop.synchronous")(Loop)
  require("terra.loop.batch_decode")(Loop)
  require("terra.loop.resizing")(Loop)
  return Loop
end)

return { Loop = Loop }
