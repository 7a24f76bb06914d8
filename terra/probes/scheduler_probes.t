local abi = require("terra.base.abi")
local batch = require("terra.scheduling.batch")
local config = require("terra.checkpoint.config")
local costs = require("terra.scheduling.costs")
local ledger = require("terra.probes.ledger")
local lookup = require("terra.scheduling.lookup")
local loop = require("terra.loop.loop")
local mask_queue = require("terra.scheduling.mask_queue")
local pages = require("terra.scheduling.pages")
local request = require("terra.scheduling.request")
local scheduler = require("terra.scheduling.scheduler")
local sequence = require("terra.scheduling.sequence")
local status = require("terra.base.status")
local threads = require("terra.base.threads")
local C = abi.C

local PagePool = pages.PagePool
local LedgerRanks = ledger.LedgerRanks
local Loop = loop.Loop(LedgerRanks)
local Lookup = lookup.Lookup
local MaskQueue = mask_queue.MaskQueue
local Scheduler = scheduler.Scheduler

local prefill_step_tokens = 8192
local probes = {}

local function delegate(prefix, methods, names, open)
  for _, name in ipairs(names) do
    local method = methods[name]
    local signature = method:gettype()
    local handle = symbol(&opaque, "handle")
    local arguments = terralib.newlist()
    for index = 2, #signature.parameters do
      arguments:insert(symbol(signature.parameters[index]))
    end
    probes[prefix .. name] = terra([handle], [arguments]) : signature.returntype
      return method([open(handle)], [arguments])
    end
  end
end

delegate("page_pool_", PagePool.methods, {
  "acquire", "retain", "release", "find", "register", "drop_cache", "plan_resize", "commit_resize", "is_consistent", "is_cached", "count_registered",
}, function(handle) return `[&PagePool](handle) end)

terra probes.page_pool_open(capacity : int32, page_size : int32, hash_mask : uint64, message : &C.glm_message) : &opaque
  var pool = [&PagePool](C.malloc(sizeof(PagePool)))
  if pool:init(capacity, page_size, message) ~= C.GLM_OK then
    pool:free()
    C.free(pool)
    return nil
  end
  pool.hash_mask = hash_mask
  return pool
end

terra probes.page_pool_tell_events(handle : &opaque, message : &C.glm_message) : int32
  var pool = [&PagePool](handle)
  return pool.kv_events:init(pool.capacity, pool.page_size, message)
end

terra probes.page_pool_take_events(handle : &opaque, events : &C.engine_kv_event, tokens : &int32, capacity : int32) : int32
  return [&PagePool](handle).kv_events:take(events, tokens, capacity)
end

terra probes.page_pool_close(handle : &opaque)
  var pool = [&PagePool](handle)
  pool:free()
  C.free(pool)
end

terra probes.page_pool_counts(handle : &opaque, counts : &int64)
  var pool = [&PagePool](handle)
  counts[0] = pool.num_pages
  counts[1] = pool.num_free
  counts[2] = pool.num_owned
  counts[3] = pool.num_cached
  counts[4] = pool.num_evictions
end

terra probes.page_pool_move(handle : &opaque, index : int32, source : &int32, destination : &int32)
  var pool = [&PagePool](handle)
  @source = pool.move_sources[index]
  @destination = pool.move_destinations[index]
end

delegate("mask_queue_", MaskQueue.methods, { "give", "take", "publish", "lacks", "at" }, function(handle) return `[&MaskQueue](handle) end)

terra probes.mask_queue_open(num_tokens : int32, depth : int32) : &opaque
  var queue = [&MaskQueue](C.malloc(sizeof(MaskQueue)))
  queue:init(num_tokens, depth)
  return queue
end

terra probes.mask_queue_is_late(handle : &opaque, change : bool) : bool
  var queue = [&MaskQueue](handle)
  queue.is_late = queue.is_late or change
  return queue.is_late
end

terra probes.mask_queue_close(handle : &opaque)
  [&MaskQueue](handle):free()
  C.free(handle)
end

delegate("lookup_", Lookup.methods, { "predict", "read", "push", "continuation" }, function(handle) return `[&Lookup](handle) end)

terra probes.lookup_open(num_tokens : int64) : &opaque
  var self = [&Lookup](C.malloc(sizeof(Lookup)))
  self:init(num_tokens)
  return self
end

terra probes.lookup_close(handle : &opaque)
  [&Lookup](handle):free()
  C.free(handle)
end

terra probes.count_loop_iterations(begin : int32, finish : int32, last : &int32) : int32
  var count = 0
  for i = begin, finish do
    count = count + 1
    @last = i
  end
  return count
end

terra probes.count_stepped_iterations(begin : int32, finish : int32, by : int32) : int32
  var count = 0
  for i = begin, finish, by do
    count = count + 1
  end
  return count
end

local struct Ledger {
  loop : Loop
  ranks : LedgerRanks
  model : config.ModelConfig
  memory : &int8
  is_manual : bool
}

local struct LedgerOptions {
  num_pages : int32
  page_size : int32
  max_seq : int32
  max_batch : int32
  max_step_tokens : int32
  prefill_chunk : int32
  max_logit_rows : int32
  max_queue : int32
  prefix_cache : int32
  caches_answers : int32
  vocab_size : int32
  eos_token : int32
  is_manual : int32
  plans_ahead : int32
  kv_events : int32
  decode_ns : int32
  step_budget_ms : int32
  step_us : int32
  row_us : int32
  device_percent : int32
  decode_context_ns : int32
  prefill_context_ns : int32
  max_draft_tokens : int32
  speculate : int32
  acceptance_length : int32
  max_draft_rows : int32
  layer_percent : int32
  draft_us : int32
}

local terra costs_of(o : &LedgerOptions) : costs.StepCosts
  var result = costs.unbounded()
  result.budget_ns = [int64](o.step_budget_ms) * 1000000
  for rows = 1, 3 do
    result.rows:add(rows, ([int64](o.step_us) + rows * o.row_us) * 1000)
  end
  result.draft_ns = [int64](o.draft_us) * 1000
  result.decode_context_ns = o.decode_context_ns
  result.prefill_context_ns = o.prefill_context_ns
  return result
end

local terra shape_of(o : &LedgerOptions) : batch.StepShape
  return batch.StepShape {
    max_step_tokens = o.max_step_tokens,
    max_sequences = o.max_batch,
    rows_per_sequence = 1 + o.max_draft_tokens,
    max_decode_rows = o.max_batch * (1 + o.max_draft_tokens),
    max_pages_per_sequence = (o.max_seq + o.page_size - 1) / o.page_size,
    max_logit_rows = o.max_logit_rows,
    max_draft_rows = o.max_draft_rows,
    max_biases = 16 * o.max_logit_rows,
    max_masks = o.max_logit_rows,
    vocab_size = o.vocab_size,
  }
end

local terra bind_step(step : &batch.StepPlan, shape : batch.StepShape) : &int8
  var memory = [&int8](C.calloc(1, shape:host_bytes()))
  step:bind(&shape, memory)
  return memory
end

local engine_options = {
  "num_pages", "page_size", "max_seq", "max_batch", "prefill_chunk", "max_queue", "prefix_cache", "kv_events",
  "max_draft_tokens", "speculate", "acceptance_length",
}

local terra scheduler_options(o : &LedgerOptions, prices : costs.StepCosts) : scheduler.SchedulerOptions
  var result = scheduler.SchedulerOptions { caches_answers = o.caches_answers ~= 0, plans_ahead = o.plans_ahead ~= 0, costs = prices }
  escape
    for _, name in ipairs(engine_options) do
      emit quote result.engine.[name] = o.[name] end
    end
  end
  return result
end

terra probes.ledger_open(o : &LedgerOptions, message : &C.glm_message) : &opaque
  var self = [&Ledger](C.calloc(1, sizeof(Ledger)))
  self.model.vocab_size = o.vocab_size
  if o.eos_token >= 0 then
    self.model.num_eos_tokens = 1
    self.model.eos_tokens[0] = o.eos_token
  end
  var shape = shape_of(o)
  self.ranks:init(shape, o.num_pages, o.page_size, o.caches_answers ~= 0)
  self.ranks.layer_percent = o.layer_percent
  self.ranks.decode_ns = o.decode_ns
  self.ranks.step_ns = [int64](o.step_us) * o.device_percent * 10
  self.ranks.row_ns = [int64](o.row_us) * o.device_percent * 10
  var chosen = scheduler_options(o, costs_of(o))
  var step : batch.StepPlan
  self.memory = bind_step(&step, shape)
  self.is_manual = o.is_manual ~= 0
  var code = self.loop:init(&self.model, &chosen, &step, &self.ranks, message)
  self.loop.is_started = self.is_manual
  if code ~= C.GLM_OK then
    return nil
  end
  return self
end

terra probes.ledger_close(handle : &opaque)
  var self = [&Ledger](handle)
  if self.is_manual then
    self.loop.is_started = false
  end
  self.loop:free()
  self.ranks:free()
  C.free(self.memory)
  C.free(self)
end

terra probes.ledger_fail_at(handle : &opaque, step : int32, transfer : int32, for_good : bool)
  var ranks = &[&Ledger](handle).ranks
  ranks.failing_step = terralib.select(step < 0, -1, ranks.step_calls + step)
  ranks.failing_transfer = terralib.select(transfer < 0, -1, ranks.transfer_calls + transfer)
  ranks.breaks_for_good = for_good
end

terra probes.ledger_calls(handle : &opaque, calls : &int32)
  var ranks = &[&Ledger](handle).ranks
  calls[0] = ranks.num_launched
  calls[1] = ranks.num_sampled
  calls[2] = ranks.num_landed
  calls[3] = ranks.num_awaited_forwards
  calls[4] = ranks.num_draft_rows
  calls[5] = ranks.num_drafting_steps
end

terra probes.ledger_cost_factor(handle : &opaque) : double
  return [&Ledger](handle).loop.scheduler.options.costs.factor
end

terra probes.ledger_planning_delay(handle : &opaque, expected_ns : int64) : int64
  return [&Ledger](handle).loop.scheduler.options.costs:planning_delay(expected_ns)
end

terra probes.ledger_is_consistent(handle : &opaque) : bool
  var self = [&Ledger](handle)
  self.loop.turnstile:enter()
  var is_consistent = self.loop.scheduler:is_consistent()
  self.loop.turnstile:leave()
  return is_consistent
end

delegate("ledger_", Loop.methods, {
  "iterate", "submit", "cancel", "preempt", "set_masks", "poll", "wait", "info", "resize_pool",
  "prefill", "decode_tokens", "run_batch_decode", "free_state",
}, function(handle) return `&[&Ledger](handle).loop end)

terra probes.ledger_event_fd(handle : &opaque) : int32
  return [&Ledger](handle).loop.event_fd
end

local terra long_request(context : int32, num_steps : int32, tokens : &int32) : C.engine_request
  var wanted : C.engine_request
  request.default(&wanted)
  wanted.prompt = tokens
  wanted.prompt_length = context
  wanted.max_tokens = num_steps
  wanted.ignore_eos = 1
  return wanted
end

local terra accept_step(self : &Scheduler)
  for row = 0, self.step.num_sample_rows do
    self.step.outputs.token_ids[row] = 1
    self.step.outputs.is_finite[row] = 1
  end
  self:advance(0)
  self.events:clear()
end

local terra add_long_sequences(self : &Scheduler, limits : &request.Limits, num_sequences : int32, context : int32, num_steps : int32, message : &C.glm_message) : int32
  var model : config.ModelConfig
  model.num_eos_tokens = 0
  var tokens = [&int32](C.calloc(context, sizeof(int32)))
  var code : int32 = C.GLM_OK
  for i = 0, num_sequences do
    if code == C.GLM_OK then
      for position = 0, context do
        tokens[position] = (i + position) % 1000
      end
      var wanted = long_request(context, num_steps, tokens)
      var item : &sequence.Sequence
      code = request.copy(&wanted, &model, limits, &item, message)
      if code == C.GLM_OK then
        item.id = i + 1
        self:add(item)
      end
    end
  end
  C.free(tokens)
  return code
end

local terra measure_plans(self : &Scheduler, num_sequences : int32, num_steps : int32, times_ns : &int64, message : &C.glm_message) : int32
  while self:plan() and self.step.num_decode_tokens < num_sequences do
    accept_step(self)
  end
  for i = 0, num_steps do
    var begin = threads.now_ns()
    self:plan()
    times_ns[i] = threads.now_ns() - begin
    status.fail_if(message, self.step.num_decode_tokens ~= num_sequences, C.GLM_INTERNAL_ERROR, "step %d has %d decode rows; expected %d", i, self.step.num_decode_tokens, num_sequences)
    accept_step(self)
  end
  return C.GLM_OK
end

local terra most_outputs(num_sequences : int32, context : int32, num_steps : int32) : int32
  return num_steps + 2 * num_sequences * (context + prefill_step_tokens) / prefill_step_tokens
end

local terra measured_options(num_sequences : int32, max_seq : int32) : LedgerOptions
  var o : LedgerOptions
  C.memset(&o, 0, sizeof(LedgerOptions))
  o.page_size = 16
  o.max_seq = max_seq
  o.max_batch = num_sequences
  o.num_pages = num_sequences * ((max_seq + o.page_size - 1) / o.page_size)
  o.prefix_cache = 1
  o.max_step_tokens = prefill_step_tokens
  o.max_logit_rows = num_sequences
  o.vocab_size = 151552
  return o
end

local terra measure_on(self : &Scheduler, o : &LedgerOptions, context : int32, num_outputs : int32, num_steps : int32, times_ns : &int64, message : &C.glm_message) : int32
  var shape = self.step.shape
  var chosen = scheduler_options(o, costs.unbounded())
  var limits = request.Limits {
    vocab_size = o.vocab_size, looks_up = false, drafts_with_layer = false, masks_per_request = 1, max_seq = o.max_seq, max_biases = shape.max_biases, page_size = o.page_size, num_pages = o.num_pages,
  }
  status.try(self:init(&chosen, self.step, message))
  status.try(add_long_sequences(self, &limits, o.max_batch, context, num_outputs, message))
  return measure_plans(self, o.max_batch, num_steps, times_ns, message)
end

terra probes.scheduler_measure_plan(num_sequences : int32, context : int32, num_steps : int32, times_ns : &int64, message : &C.glm_message) : int32
  var num_outputs = most_outputs(num_sequences, context, num_steps)
  var o = measured_options(num_sequences, context + num_outputs)
  var step : batch.StepPlan
  var memory = bind_step(&step, shape_of(&o))
  var self : Scheduler
  C.memset(&self, 0, sizeof(Scheduler))
  self.step = &step
  var code = measure_on(&self, &o, context, num_outputs, num_steps, times_ns, message)
  self:free()
  C.free(memory)
  return code
end

return { probes = probes }
