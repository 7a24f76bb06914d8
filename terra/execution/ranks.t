local abi = require("terra.base.abi")
local batch = require("terra.scheduling.batch")
local forward = require("terra.execution.forward")
local rank = require("terra.execution.rank")
local status = require("terra.base.status")
local C = abi.C

local Rank, call = rank.Rank, rank.call
local StepPlan = batch.StepPlan
local Job = { &Rank, &opaque, &C.glm_message } -> int32

local struct RankGroup {
  world_size : int32
  ranks : &Rank
  backend : &C.glm_backend
  group : &C.glm_group
  threads : &C.pthread_t
  num_threads : int32
  mutex : C.pthread_mutex_t
  started : C.pthread_cond_t
  finished : C.pthread_cond_t
  generation : int64
  num_running : int32
  stopping : bool
  is_usable : bool
  job : Job
  context : &opaque
  codes : &int32
  messages : &C.glm_message
}

local struct RankThread {
  group : &RankGroup
  index : int32
}

terra RankGroup:execute(index : int32)
  var message = &self.messages[index]
  message.text[0] = 0
  var code = self.job(&self.ranks[index], self.context, message)
  self.codes[index] = code
  if code ~= C.GLM_OK and self.world_size > 1 then
    self.backend.group_abort(self.group)
  end
end

terra RankGroup:wait_for_generation(seen : int64) : bool
  C.pthread_mutex_lock(&self.mutex)
  while self.generation == seen and not self.stopping do
    C.pthread_cond_wait(&self.started, &self.mutex)
  end
  var stopping = self.stopping
  C.pthread_mutex_unlock(&self.mutex)
  return not stopping
end

terra RankGroup:report_finished()
  C.pthread_mutex_lock(&self.mutex)
  self.num_running = self.num_running - 1
  if self.num_running == 0 then
    C.pthread_cond_signal(&self.finished)
  end
  C.pthread_mutex_unlock(&self.mutex)
end

local terra rank_thread(argument : &opaque) : &opaque
  var thread = [&RankThread](argument)
  var group, index = thread.group, thread.index
  C.free(argument)
  var generation : int64 = 0
  while group:wait_for_generation(generation) do
    generation = generation + 1
    group:execute(index)
    group:report_finished()
  end
  return nil
end

terra RankGroup:first_failure(message : &C.glm_message) : int32
  var failed = -1
  for i = 0, self.world_size do
    var code = self.codes[i]
    if code ~= C.GLM_OK and (failed < 0 or self.codes[failed] == C.GLM_CANCELLED) then
      failed = i
    end
  end
  if failed < 0 then
    return C.GLM_OK
  end
  if self.world_size > 1 then
    self.is_usable = false
  end
  if message ~= nil then
    @message = self.messages[failed]
  end
  return self.codes[failed]
end

terra RankGroup:run(job : Job, context : &opaque, message : &C.glm_message) : int32
  if not self.is_usable then
    return status.fail(message, C.GLM_DEVICE_ERROR, "the device group is lost after an earlier failure; free the engine and start it again")
  end
  self.job = job
  self.context = context
  if self.num_threads == 0 then
    self:execute(0)
    return self:first_failure(message)
  end
  C.pthread_mutex_lock(&self.mutex)
  self.num_running = self.world_size
  self.generation = self.generation + 1
  C.pthread_cond_broadcast(&self.started)
  while self.num_running > 0 do
    C.pthread_cond_wait(&self.finished, &self.mutex)
  end
  C.pthread_mutex_unlock(&self.mutex)
  return self:first_failure(message)
end

terra RankGroup:start_threads(message : &C.glm_message) : int32
  for i = 0, self.world_size do
    var thread = [&RankThread](C.malloc(sizeof(RankThread)))
    if thread == nil then
      return status.fail(message, C.GLM_OUT_OF_MEMORY, "no memory for the thread of rank %d", i)
    end
    thread.group = self
    thread.index = i
    var code = C.pthread_create(&self.threads[i], nil, rank_thread, thread)
    if code ~= 0 then
      C.free(thread)
      return status.fail(message, C.GLM_INTERNAL_ERROR, "the thread of rank %d could not start: %s", i, C.strerror(code))
    end
    self.num_threads = i + 1
  end
  return C.GLM_OK
end

terra RankGroup:init(backend : &C.glm_backend, world_size : int32, message : &C.glm_message) : int32
  C.memset(self, 0, sizeof(RankGroup))
  self.backend = backend
  self.world_size = world_size
  self.is_usable = true
  C.pthread_mutex_init(&self.mutex, nil)
  C.pthread_cond_init(&self.started, nil)
  C.pthread_cond_init(&self.finished, nil)
  self.ranks = [&Rank](C.calloc(world_size, sizeof(Rank)))
  self.codes = [&int32](C.calloc(world_size, sizeof(int32)))
  self.messages = [&C.glm_message](C.calloc(world_size, sizeof(C.glm_message)))
  self.threads = [&C.pthread_t](C.calloc(world_size, sizeof(C.pthread_t)))
  if self.ranks == nil or self.codes == nil or self.messages == nil or self.threads == nil then
    return status.fail(message, C.GLM_OUT_OF_MEMORY, "no memory for %d ranks", world_size)
  end
  for i = 0, world_size do
    self.ranks[i].index = i
    self.ranks[i].world_size = world_size
    self.ranks[i].backend = backend
  end
  if world_size == 1 then
    return C.GLM_OK
  end
  status.try(backend.group_create(world_size, &self.group, message))
  return self:start_threads(message)
end

terra RankGroup:free()
  C.pthread_mutex_lock(&self.mutex)
  self.stopping = true
  C.pthread_cond_broadcast(&self.started)
  C.pthread_mutex_unlock(&self.mutex)
  for i = 0, self.num_threads do
    C.pthread_join(self.threads[i], nil)
  end
  if self.group ~= nil then
    self.backend.group_free(self.group)
  end
  C.free(self.ranks)
  C.free(self.codes)
  C.free(self.messages)
  C.free(self.threads)
  C.pthread_cond_destroy(&self.started)
  C.pthread_cond_destroy(&self.finished)
  C.pthread_mutex_destroy(&self.mutex)
end

local terra upload_inputs(self : &Rank, plan : &StepPlan, message : &C.glm_message) : int32
  var device, host = &self.buffers.inputs, &plan.inputs
  var small = [&int8](host.page_table) - host.data
  call(self, message, "upload of the step's inputs", "upload", device.data, host.data, small)
  var stride = plan.shape.max_pages_per_sequence
  var begin = plan.page_table_row_begin * stride
  var count = plan.page_table_row_end * stride - begin
  if count > 0 then
    call(self, message, "upload of the page table", "upload", device.page_table + begin, host.page_table + begin, [int64](count) * sizeof(int32))
  end
  return C.GLM_OK
end

local terra download_logits(self : &Rank, plan : &StepPlan, message : &C.glm_message) : int32
  var bytes = [int64](plan.num_logit_rows) * self.config.vocab_size * sizeof(float)
  call(self, message, "download of the logits", "download", plan.logits, self.buffers.logits, bytes)
  return C.GLM_OK
end

local terra sample_rows(self : &Rank, plan : &StepPlan, message : &C.glm_message) : int32
  status.try(forward.sample(self, plan, message))
  call(self, message, "download of the sampled tokens", "download", plan.outputs.data, self.buffers.outputs.data, plan.outputs.bytes)
  return C.GLM_OK
end

local terra step_job(self : &Rank, context : &opaque, message : &C.glm_message) : int32
  var plan = [&StepPlan](context)
  status.try(upload_inputs(self, plan, message))
  status.try(forward.step(self, plan, message))
  if self.index == 0 then
    if plan.logits ~= nil and plan.num_logit_rows > 0 then
      status.try(download_logits(self, plan, message))
    end
    if plan.num_sample_rows > 0 then
      status.try(sample_rows(self, plan, message))
    end
  end
  call(self, message, "step", "synchronise")
  return C.GLM_OK
end

terra RankGroup:step(plan : &StepPlan, message : &C.glm_message) : int32
  return self:run(step_job, plan, message)
end

local terra copy_pages_job(self : &Rank, context : &opaque, message : &C.glm_message) : int32
  var args = @[&C.glm_copy_pages_args](context)
  args.cache = &self.cache
  call(self, message, "copy_pages", "copy_pages", &args)
  return C.GLM_OK
end

terra RankGroup:copy_pages(num_pages : int32, source : &int32, destination : &int32, message : &C.glm_message) : int32
  var args = C.glm_copy_pages_args { cache = nil, num_pages = num_pages, source_pages = source, destination_pages = destination }
  return self:run(copy_pages_job, &args, message)
end

local struct PageTransfer {
  args : C.glm_transfer_pages_args
  bytes_per_page : int64
  is_restore : bool
}

local terra transfer_pages_job(self : &Rank, context : &opaque, message : &C.glm_message) : int32
  var transfer = [&PageTransfer](context)
  var args = transfer.args
  args.cache = &self.cache
  args.host_data = [&int8](args.host_data) + transfer.bytes_per_page * args.num_pages * self.index
  if transfer.is_restore then
    call(self, message, "restore_pages", "restore_pages", &args)
  else
    call(self, message, "save_pages", "save_pages", &args)
  end
  call(self, message, "transfer of pages", "synchronise")
  return C.GLM_OK
end

terra RankGroup:rank_page_bytes() : int64
  var bytes : int64 = 0
  self.backend.kv_page_bytes(&self.ranks[0].cache, &bytes)
  return bytes
end

terra RankGroup:page_host_bytes() : int64
  return self:rank_page_bytes() * self.world_size
end

terra RankGroup:transfer_pages(is_restore : bool, num_pages : int32, pages : &int32, host : &opaque, message : &C.glm_message) : int32
  var transfer : PageTransfer
  transfer.args = C.glm_transfer_pages_args { cache = nil, num_pages = num_pages, pages = pages, host_data = host }
  transfer.bytes_per_page = self:rank_page_bytes()
  transfer.is_restore = is_restore
  return self:run(transfer_pages_job, &transfer, message)
end

terra RankGroup:save_pages(num_pages : int32, pages : &int32, host : &opaque, message : &C.glm_message) : int32
  return self:transfer_pages(false, num_pages, pages, host, message)
end

terra RankGroup:restore_pages(num_pages : int32, pages : &int32, host : &opaque, message : &C.glm_message) : int32
  return self:transfer_pages(true, num_pages, pages, host, message)
end

local terra count_tokens_job(self : &Rank, context : &opaque, message : &C.glm_message) : int32
  if self.index ~= 0 then
    return C.GLM_OK
  end
  var args = @[&C.glm_count_tokens_args](context)
  args.counts = self.buffers.counts
  args.vocab_size = self.config.vocab_size
  if args.num_tokens > 0 then
    call(self, message, "upload of the tokens to count", "upload", self.buffers.count_tokens, args.token_ids, [int64](args.num_tokens) * sizeof(int32))
  end
  args.token_ids = self.buffers.count_tokens
  call(self, message, "count_tokens", "count_tokens", &args)
  return C.GLM_OK
end

local terra as_flag(value : bool) : int32
  return terralib.select(value, 1, 0)
end

terra RankGroup:count_tokens(
  row : int32,
  reset : bool,
  from_prompt : bool,
  num_tokens : int32,
  tokens : &int32,
  message : &C.glm_message
) : int32
  var args : C.glm_count_tokens_args
  args.counts = nil
  args.vocab_size = 0
  args.count_row = row
  args.num_tokens = num_tokens
  args.token_ids = tokens
  args.from_prompt = as_flag(from_prompt)
  args.reset = as_flag(reset)
  return self:run(count_tokens_job, &args, message)
end

return { RankGroup = RankGroup }
