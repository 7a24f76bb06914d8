local abi = require("terra.base.abi")
local buffers = require("terra.plan.buffers")
local groups = require("terra.ranks.groups")
local rank = require("terra.ranks.rank")
local status = require("terra.base.status")
local threads = require("terra.base.threads")
local watch = require("terra.ranks.watch")
local C = abi.C

local Rank = rank.Rank
local ticks_after_abort = 3
local Job = { &Rank, &opaque, &C.glm_message } -> int32

local struct Flight {
  num_logit_rows : int32
  num_sample_rows : int32
  num_draft_rows : int32
  leaves_drafts : bool
  wants_logprobs : bool
  is_graph : bool
  awaits_masks : bool
  device_ns : int64
}

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
  is_watched : bool
  watches_launches : bool
  is_running : &bool
  has_failed : bool
  first_failed : int32
  job : Job
  context : &opaque
  codes : &int32
  messages : &C.glm_message
  flights : Flight[buffers.num_stagings]
  num_launched : int64
  num_landed : int64
  num_graph_steps : int64
  device_ns : int64
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

terra RankGroup:failed_itself(index : int32) : bool
  return self.codes[index] ~= C.GLM_OK and self.codes[index] ~= C.GLM_CANCELLED
end

terra RankGroup:report_finished(index : int32)
  C.pthread_mutex_lock(&self.mutex)
  self.is_running[index] = false
  self.has_failed = self.has_failed or self.codes[index] ~= C.GLM_OK
  if self.first_failed < 0 and self:failed_itself(index) then
    self.first_failed = index
  end
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
    group:report_finished(index)
  end
  return nil
end

terra RankGroup:named_failure() : int32
  if self.first_failed >= 0 then
    return self.first_failed
  end
  var failed = -1
  for i = 0, self.world_size do
    if self:failed_itself(i) then
      return i
    elseif failed < 0 and self.codes[i] ~= C.GLM_OK then
      failed = i
    end
  end
  return failed
end

terra RankGroup:ask_cancelled_ranks()
  for i = 0, self.world_size do
    var rank = &self.ranks[i]
    if self.codes[i] == C.GLM_CANCELLED and not rank.is_abandoned and rank.step_end[0] ~= nil then
      if self.backend.event_synchronise(rank.device, rank.step_end[0]) == C.GLM_DEVICE_ERROR then
        self.codes[i] = C.GLM_DEVICE_ERROR
      end
    end
  end
end

terra RankGroup:name_other_failures(failed : int32, message : &C.glm_message)
  for i = 0, self.world_size do
    if i ~= failed and self.codes[i] == C.GLM_DEVICE_ERROR then
      var length = C.strlen(&message.text[0])
      C.snprintf(&message.text[length], C.GLM_MESSAGE_CAPACITY - length, "; rank %d failed too", i)
    end
  end
end

terra RankGroup:first_failure(message : &C.glm_message) : int32
  self:ask_cancelled_ranks()
  var failed = self:named_failure()
  if failed < 0 then
    return C.GLM_OK
  end
  if self.world_size > 1 or self.backend.synchronise(self.ranks[0].device) ~= C.GLM_OK then
    self.is_usable = false
  end
  if message ~= nil then
    @message = self.messages[failed]
    self:name_other_failures(failed, message)
  end
  return self.codes[failed]
end

terra RankGroup:activity() : watch.Activity
  var found = watch.Activity { num_running = self.num_running, has_failed = self.has_failed, num_calls = 0, cpu_ns = 0 }
  for i = 0, self.world_size do
    if self.is_running[i] then
      found.num_calls = found.num_calls + self.ranks[i].num_calls
      found.cpu_ns = found.cpu_ns + watch.cpu_ns(self.threads[i])
    end
  end
  return found
end

terra RankGroup:await_ranks() : bool
  var watching : watch.Watch
  watching:init(self:activity())
  while self.num_running > 0 do
    if not self.is_watched then
      C.pthread_cond_wait(&self.finished, &self.mutex)
    else
      watch.wait_a_tick(&self.finished, &self.mutex)
      if self.num_running > 0 and watching:finds_idle(self:activity()) then
        return false
      end
    end
  end
  return true
end

terra RankGroup:first_running() : int32
  for i = 0, self.world_size do
    if self.is_running[i] then
      return i
    end
  end
  return -1
end

terra RankGroup:blame(index : int32, seconds : double)
  var cause : int8[128]
  C.snprintf(&cause[0], 128, "the call has not returned, and the rank has been idle for %.2g s", seconds)
  self.ranks[index]:fail_operation(&cause[0], &self.messages[index])
  self.codes[index] = C.GLM_DEVICE_ERROR
end

terra RankGroup:abandon()
  var first = self:first_running()
  var seconds = terralib.select(self.has_failed, [watch.limit_seconds_after_failure], [watch.limit_seconds])
  self.backend.group_abort(self.group)
  for tick = 0, ticks_after_abort do
    if self.num_running > 0 then
      watch.wait_a_tick(&self.finished, &self.mutex)
    end
  end
  if self.num_running == 0 then
    self:blame(first, seconds)
  end
  for i = 0, self.world_size do
    if self.is_running[i] then
      self.ranks[i].is_abandoned = true
      self:blame(i, seconds)
    end
  end
end

terra RankGroup:hangs() : bool
  C.pthread_mutex_lock(&self.mutex)
  var hangs = self.num_running > 0
  C.pthread_mutex_unlock(&self.mutex)
  return hangs
end

terra RankGroup:run_threads()
  C.pthread_mutex_lock(&self.mutex)
  self.num_running = self.world_size
  self.has_failed = false
  self.first_failed = -1
  for i = 0, self.world_size do
    self.is_running[i] = true
  end
  self.generation = self.generation + 1
  C.pthread_cond_broadcast(&self.started)
  if not self:await_ranks() then
    self:abandon()
  end
  C.pthread_mutex_unlock(&self.mutex)
end

terra RankGroup:run(job : Job, context : &opaque, message : &C.glm_message) : int32
  status.fail_if(message, not self.is_usable, C.GLM_DEVICE_ERROR, "the devices were lost in an earlier failure; free the engine and create a new one")
  self.job = job
  self.context = context
  if self.num_threads == 0 then
    self:execute(0)
    return self:first_failure(message)
  end
  self:run_threads()
  return self:first_failure(message)
end

terra RankGroup:start_threads(message : &C.glm_message) : int32
  for i = 0, self.world_size do
    var thread = [&RankThread](C.malloc(sizeof(RankThread)))
    status.fail_if(message, thread == nil, C.GLM_OUT_OF_MEMORY, "not enough host memory for rank %d's thread", i)
    thread.group = self
    thread.index = i
    var code = C.pthread_create(&self.threads[i], nil, rank_thread, thread)
    if code ~= 0 then
      C.free(thread)
      return status.fail(message, C.GLM_INTERNAL_ERROR, "cannot start the thread for rank %d: %s", i, C.strerror(code))
    end
    self.num_threads = i + 1
  end
  return C.GLM_OK
end

terra RankGroup:init(backend : &C.glm_backend, world_size : int32, ranks_per_device : int32, message : &C.glm_message) : int32
  C.memset(self, 0, sizeof(RankGroup))
  self.backend = backend
  self.world_size = world_size
  self.is_usable = true
  self.first_failed = -1
  C.pthread_mutex_init(&self.mutex, nil)
  C.pthread_cond_init(&self.started, nil)
  threads.init_condition(&self.finished)
  self.ranks = [&Rank](C.calloc(world_size, sizeof(Rank)))
  self.codes = [&int32](C.calloc(world_size, sizeof(int32)))
  self.messages = [&C.glm_message](C.calloc(world_size, sizeof(C.glm_message)))
  self.threads = [&C.pthread_t](C.calloc(world_size, sizeof(C.pthread_t)))
  self.is_running = [&bool](C.calloc(world_size, sizeof(bool)))
  status.fail_if(message, self.ranks == nil or self.codes == nil or self.is_running == nil or self.messages == nil or self.threads == nil, C.GLM_OUT_OF_MEMORY, "not enough host memory for %d ranks", world_size)
  for i = 0, world_size do
    self.ranks[i].index = i
    self.ranks[i].world_size = world_size
    self.ranks[i].backend = backend
  end
  if world_size == 1 then
    return C.GLM_OK
  end
  status.try(groups.create(backend, world_size, ranks_per_device, &self.group, message))
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
  C.free(self.is_running)
  C.free(self.messages)
  C.free(self.threads)
  C.pthread_cond_destroy(&self.started)
  C.pthread_cond_destroy(&self.finished)
  C.pthread_mutex_destroy(&self.mutex)
end

require("terra.ranks.steps")(RankGroup, Flight, Job)
require("terra.ranks.transfers")(RankGroup)
require("terra.ranks.measures")(RankGroup)

return { RankGroup = RankGroup }
