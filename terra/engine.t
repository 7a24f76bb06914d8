local abi = require("terra.base.abi")
local device_probes = require("terra.probes.device_probes")
local engine = require("terra.execution.engine")
local loader_probes = require("terra.probes.loader_probes")
local options = require("terra.plan.options")
local report = require("terra.plan.report")
local scheduler_probes = require("terra.probes.scheduler_probes")
local sequence = require("terra.scheduling.sequence")
local status = require("terra.base.status")
local threads = require("terra.base.threads")
local C = abi.C

local Engine = engine.Engine
local Sequence = sequence.Sequence

local exports = {}

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

terra exports.engine_set_masks(handle : &C.glm_engine, masks : &C.engine_mask, num_masks : int32, message : &C.glm_message) : int32
  return loop_of(handle, message):set_masks(masks, num_masks, message)
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
  return [&Engine](handle):measure_read(bytes_per_second, message)
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

return { exports = merge(exports, { report.exports }), probes = merge({}, { device_probes.probes, loader_probes.probes, scheduler_probes.probes }) }
