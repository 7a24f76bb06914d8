local abi = require("terra.base.abi")
local batch = require("terra.scheduling.batch")
local device = require("terra.execution.device")
local measures = require("terra.execution.measures")
local load = require("terra.execution.load")
local loader_probes = require("terra.probes.loader_probes")
local loop = require("terra.loop.loop")
local model = require("terra.checkpoint.model")
local options = require("terra.plan.options")
local plan = require("terra.plan.plan")
local report = require("terra.plan.report")
local scheduler_probes = require("terra.probes.scheduler_probes")
local sequence = require("terra.scheduling.sequence")
local status = require("terra.base.status")
local threads = require("terra.base.threads")
local C = abi.C

local Loop = loop.Loop(measures.RankGroup)
local Sequence = sequence.Sequence

local struct Engine {
  library : device.Library
  device_info : C.glm_device_info
  model : model.Model
  plan : plan.Plan
  ranks : measures.RankGroup
  loop : Loop
  stage : int32
  load_ns : int64
  capture_ns : int64
  graph_bytes : int64
  plan_memory : &int8
}

local model_open, ranks_open, loop_open = 1, 2, 3

local exports = {}

terra Engine:start_loop(message : &C.glm_message) : int32
  var planned = &self.plan
  var input_bytes = batch.StepInputs.bytes_for(&planned.shape)
  self.plan_memory = [&int8](C.calloc(1, input_bytes + batch.StepOutputs.bytes_for(&planned.shape)))
  if self.plan_memory == nil then
    return status.fail(message, C.GLM_OUT_OF_MEMORY, "no host memory for the plan of a step")
  end
  var chosen : loop.LoopOptions
  chosen.num_pages = planned.num_pages
  chosen.page_size = planned.options.page_size
  chosen.max_seq = planned.options.max_seq
  chosen.max_batch = planned.options.max_batch
  chosen.prefill_chunk = planned.options.prefill_chunk
  chosen.max_queue = planned.options.max_queue
  chosen.prefix_cache = planned.options.prefix_cache ~= 0
  chosen.shape = planned.shape
  chosen.plans_ahead = planned.plans_ahead
  chosen.host_inputs = self.plan_memory
  chosen.host_outputs = self.plan_memory + input_bytes
  return self.loop:init(&self.model.config, &chosen, &self.ranks, message)
end

terra Engine:make_plan(wanted : &C.engine_options, message : &C.glm_message) : int32
  status.try(self.library:describe(&self.device_info, message))
  var shares_memory = self.library:shares_memory()
  status.try(self.plan:make(&self.model, self.library.backend, &self.device_info, shares_memory, wanted, message))
  return self.plan:require_fit(message)
end

terra Engine:free_device_memory() : int64
  var info : C.glm_device_info
  info.struct_size = sizeof(C.glm_device_info)
  if self.library.backend.device_info(self.ranks.ranks[0].device, &info) ~= C.GLM_OK then
    return 0
  end
  return info.memory_free_bytes
end

terra Engine:capture(message : &C.glm_message) : int32
  var free_bytes, begin = self:free_device_memory(), threads.now_ns()
  status.try(load.capture(&self.ranks, &self.plan, message))
  if self.plan.uses_graphs then
    self.capture_ns = threads.now_ns() - begin
    self.graph_bytes = free_bytes - self:free_device_memory()
  end
  return C.GLM_OK
end

terra Engine:open_model(wanted : &C.engine_options, message : &C.glm_message) : int32
  if wanted.synthetic ~= 0 then
    return self.model:read_synthetic(wanted.model_dir, wanted.num_layers, message)
  end
  return self.model:open(wanted.model_dir, message)
end

terra Engine:open(wanted : &C.engine_options, message : &C.glm_message) : int32
  status.try(options.check_struct(wanted, message))
  status.try(self.library:open(wanted.device, wanted.library_dir, message))
  self.stage = model_open
  status.try(self:open_model(wanted, message))
  status.try(self:make_plan(wanted, message))
  self.stage = ranks_open
  status.try(self.ranks:init(self.library.backend, self.plan.options.world_size, message))
  status.try(load.ranks(&self.ranks, &self.plan, message))
  status.try(self:capture(message))
  self.stage = loop_open
  return self:start_loop(message)
end

terra Engine:close()
  if self.stage >= loop_open then
    self.loop:free()
    C.free(self.plan_memory)
  end
  if self.stage >= ranks_open then
    load.free_ranks(&self.ranks)
    self.ranks:free()
  end
  if self.stage >= model_open then
    self.model:close()
    self.library:close()
  end
end

terra exports.init_engine_with(wanted : &C.engine_options, result : &&C.glm_engine, message : &C.glm_message) : int32
  if result == nil then
    return status.fail(message, C.GLM_INVALID_ARGUMENT, "engine is null: expected where to put the handle")
  end
  @result = nil
  var begin = threads.now_ns()
  var engine = [&Engine](C.calloc(1, sizeof(Engine)))
  if engine == nil then
    return status.fail(message, C.GLM_OUT_OF_MEMORY, "no host memory for the engine")
  end
  var code = engine:open(wanted, message)
  if code ~= C.GLM_OK then
    engine:close()
    C.free(engine)
    return code
  end
  engine.load_ns = threads.now_ns() - begin
  @result = [&C.glm_engine](engine)
  return C.GLM_OK
end

terra exports.init_engine(model_dir : rawstring, max_batch : int32, max_seq : int32, num_devices : int32) : &C.glm_engine
  var wanted : C.engine_options
  options.default(&wanted)
  wanted.model_dir = model_dir
  wanted.max_batch = max_batch
  wanted.max_seq = max_seq
  wanted.world_size = num_devices
  var engine : &C.glm_engine
  var message : C.glm_message
  if exports.init_engine_with(&wanted, &engine, &message) ~= C.GLM_OK then
    C.dprintf(2, "init_engine: %s\n", &message.text[0])
  end
  return engine
end

terra exports.free_engine(handle : &C.glm_engine)
  if handle == nil then
    return
  end
  var engine = [&Engine](handle)
  engine:close()
  C.free(engine)
end

local copied_from_config = { "vocab_size", "hidden_size", "num_layers", "num_experts" }
local copied_from_options = { "world_size", "max_batch", "max_seq", "page_size", "expert_layout", "max_step_tokens" }

terra Engine:describe(info : &C.engine_info)
  var planned = &self.plan
  var num_ranks : int64 = self.ranks.world_size
  escape
    for _, name in ipairs(copied_from_config) do
      emit quote info.[name] = self.model.config.[name] end
    end
    for _, name in ipairs(copied_from_options) do
      emit quote info.[name] = planned.options.[name] end
    end
  end
  C.memcpy(&info.device[0], &self.device_info.name[0], 128)
  C.memcpy(&info.architecture[0], &self.model.config.architecture[0], 64)
  info.kv_dtype = planned.kv_dtype
  info.num_parameters = self.model.num_parameters
  info.checkpoint_bytes = self.model.checkpoint.bytes
  info.weight_bytes = planned.weight_bytes * num_ranks
  info.kv_bytes = planned.page_bytes * planned.num_pages * num_ranks
  info.workspace_bytes = planned.buffer_bytes * num_ranks
  info.kv_bytes_per_token = planned:kv_bytes_per_token(planned.kv_dtype)
  info.load_ns = self.load_ns
  info.device_ns = self.ranks.device_ns
  info.num_graph_steps = self.ranks.num_graph_steps
  info.capture_ns = self.capture_ns
  info.graph_bytes = self.graph_bytes
  info.num_graphs = self.ranks.ranks[0].num_graphs
  info.plans_ahead = terralib.select(planned.plans_ahead, 1, 0)
  self.loop:info(info)
end

terra exports.get_engine_info(handle : &C.glm_engine, info : &C.engine_info) : int32
  if handle == nil or info == nil or info.struct_size ~= sizeof(C.engine_info) then
    return C.GLM_INVALID_ARGUMENT
  end
  [&Engine](handle):describe(info)
  return C.GLM_OK
end

local require_handle = macro(function(handle, name, message)
  return quote
    if handle == nil then
      return status.fail(message, C.GLM_INVALID_ARGUMENT, "%s is null: expected what init_engine or prefill gave", name)
    end
  end
end)

local loop_of = macro(function(handle, message)
  return quote
    require_handle(handle, "engine", message)
    var engine = [&Engine](handle)
  in
    &engine.loop
  end
end)

terra exports.engine_default_request(request : &C.engine_request)
  C.memset(request, 0, sizeof(C.engine_request))
  request.struct_size = sizeof(C.engine_request)
  request.max_tokens = 16
  request.sampling.top_p = 1
  request.sampling.repetition_penalty = 1
  request.sampling.num_logprobs = -1
end

terra exports.engine_submit(
  handle : &C.glm_engine,
  request : &C.engine_request,
  request_id : &uint64,
  message : &C.glm_message
) : int32
  return loop_of(handle, message):submit(request, request_id, message)
end

terra exports.engine_cancel(handle : &C.glm_engine, request_id : uint64, message : &C.glm_message) : int32
  return loop_of(handle, message):cancel(request_id, message)
end

terra exports.engine_preempt(handle : &C.glm_engine, request_id : uint64, message : &C.glm_message) : int32
  return loop_of(handle, message):preempt(request_id, message)
end

terra exports.engine_poll(handle : &C.glm_engine, events : &C.engine_event, capacity : int32, count : &int32) : int32
  if handle == nil or events == nil or count == nil or capacity < 0 then
    return C.GLM_INVALID_ARGUMENT
  end
  return [&Engine](handle).loop:poll(events, capacity, count)
end

terra exports.engine_wait(handle : &C.glm_engine, timeout_ns : int64) : int32
  if handle == nil then
    return C.GLM_INVALID_ARGUMENT
  end
  return [&Engine](handle).loop:wait(timeout_ns)
end

terra exports.engine_event_fd(handle : &C.glm_engine) : int32
  if handle == nil then
    return -1
  end
  return [&Engine](handle).loop.event_fd
end

terra exports.engine_resize_pool(handle : &C.glm_engine, num_pages : int32, message : &C.glm_message) : int32
  return loop_of(handle, message):resize_pool(num_pages, message)
end

terra exports.engine_take_steps(handle : &C.glm_engine, steps : &C.engine_step, capacity : int32, count : &int32) : int32
  if handle == nil or steps == nil or count == nil or capacity < 0 then
    return C.GLM_INVALID_ARGUMENT
  end
  [&Engine](handle).loop:take_steps(steps, capacity, count)
  return C.GLM_OK
end

terra Engine:begin_profile(message : &C.glm_message) : int32
  self.loop:enter_turn()
  var code = self.ranks:begin_profile(message)
  self.loop.is_profiled = code == C.GLM_OK
  self.loop:leave_turn()
  return code
end

terra Engine:end_profile(target : &&C.engine_text, message : &C.glm_message) : int32
  self.loop:enter_turn()
  var made = self.ranks.ranks[0].profile
  var code : int32
  if made == nil then
    code = status.fail(message, C.GLM_INVALID_ARGUMENT, "no profile was begun")
  else
    code = report.write_profile(made, target, message)
  end
  self.ranks:end_profile()
  self.loop.is_profiled = false
  self.loop:leave_turn()
  return code
end

terra exports.engine_profile_begin(handle : &C.glm_engine, message : &C.glm_message) : int32
  require_handle(handle, "engine", message)
  return [&Engine](handle):begin_profile(message)
end

terra exports.engine_profile_end(handle : &C.glm_engine, target : &&C.engine_text, message : &C.glm_message) : int32
  require_handle(handle, "engine", message)
  require_handle(target, "text", message)
  @target = nil
  return [&Engine](handle):end_profile(target, message)
end

terra exports.engine_read_rate(handle : &C.glm_engine, bytes_per_second : &double, message : &C.glm_message) : int32
  require_handle(handle, "engine", message)
  require_handle(bytes_per_second, "bytes_per_second", message)
  var engine = [&Engine](handle)
  engine.loop:enter_turn()
  var code = engine.ranks:measure_read(bytes_per_second, message)
  engine.loop:leave_turn()
  return code
end

terra exports.prefill(
  handle : &C.glm_engine,
  tokens : &int32,
  num_tokens : int32,
  all_positions : int32,
  logits : &float,
  state : &&C.engine_state,
  message : &C.glm_message
) : int32
  require_handle(state, "state", message)
  return loop_of(handle, message):prefill(tokens, num_tokens, all_positions ~= 0, logits, [&&Sequence](state), message)
end

terra exports.decode_step(
  handle : &C.glm_engine,
  state : &C.engine_state,
  token : int32,
  logits : &float,
  message : &C.glm_message
) : int32
  require_handle(state, "state", message)
  return loop_of(handle, message):decode_step([&Sequence](state), token, logits, message)
end

terra exports.run_batch_decode(
  handle : &C.glm_engine,
  num_states : int32,
  states : &&C.engine_state,
  sampling : &C.engine_sampling,
  num_steps : int32,
  tokens : &int32,
  message : &C.glm_message
) : int32
  return loop_of(handle, message):run_batch_decode(num_states, [&&Sequence](states), sampling, num_steps, tokens, message)
end

terra exports.free_request_state(handle : &C.glm_engine, state : &C.engine_state)
  if handle ~= nil and state ~= nil then
    [&Engine](handle).loop:free_state([&Sequence](state))
  end
end

local function merge(target, modules)
  for _, module in ipairs(modules) do
    for name, value in pairs(module) do
      assert(target[name] == nil, name .. " is exported twice")
      target[name] = value
    end
  end
  return target
end

return { exports = merge(exports, { report.exports }), probes = merge({}, { loader_probes.probes, scheduler_probes.probes }) }
