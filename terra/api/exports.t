local abi = require("terra.base.abi")
local device_probes = require("terra.probes.device_probes")
local engine = require("terra.api.engine")
local handles = require("terra.base.handles")
local draft_probes = require("terra.probes.draft_probes")
local loader_probes = require("terra.probes.loader_probes")
local options = require("terra.plan.options")
local report = require("terra.api.report")
local requests = require("terra.scheduling.request")
local scheduler_probes = require("terra.probes.scheduler_probes")
local sequence = require("terra.scheduling.sequence")
local status = require("terra.base.status")
local threads = require("terra.base.threads")
local weight_probes = require("terra.probes.weight_probes")
local C = abi.C

local Engine = engine.Engine
local Sequence = sequence.Sequence

local exports = {}

local terra close_engine(engine : &Engine)
  if engine:close() then
    C.free(engine)
  end
end

local terra open_engine(engine : &Engine, wanted : &C.engine_options, result : &&C.glm_engine, message : &C.glm_message) : int32
  var begin = threads.now_ns()
  status.try(engine:open(wanted, message))
  engine.load_ns = threads.now_ns() - begin
  @result = [&C.glm_engine](handles.open([handles.engine_kind], engine, nil))
  status.fail_if(message, @result == nil, C.GLM_OUT_OF_MEMORY, "not enough host memory to create the engine")
  return C.GLM_OK
end

terra exports.init_engine_with(wanted : &C.engine_options, result : &&C.glm_engine, message : &C.glm_message) : int32
  status.refuse(message, result == nil, "engine is null: expected a pointer to receive the handle")
  @result = nil
  var engine = [&Engine](C.calloc(1, sizeof(Engine)))
  status.fail_if(message, engine == nil, C.GLM_OUT_OF_MEMORY, "not enough host memory to create the engine")
  var code = open_engine(engine, wanted, result, message)
  if code ~= C.GLM_OK then
    close_engine(engine)
  end
  return code
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

terra exports.free_engine(handle : &C.glm_engine) : int32
  if handle == nil then
    return C.GLM_OK
  end
  var engine = [&Engine](handles.close([handles.engine_kind], handle, nil))
  if engine == nil then
    return C.GLM_INVALID_ARGUMENT
  end
  handles.close_owned(engine)
  close_engine(engine)
  return C.GLM_OK
end

local terra find_engine(handle : &C.glm_engine) : &Engine
  return [&Engine](handles.find([handles.engine_kind], handle))
end

local terra find_state(handle : &C.engine_state) : &Sequence
  return [&Sequence](handles.find([handles.state_kind], handle))
end

terra exports.get_engine_info(handle : &C.glm_engine, info : &C.engine_info) : int32
  var engine = find_engine(handle)
  if engine == nil or info == nil or info.struct_size ~= sizeof(C.engine_info) then
    return C.GLM_INVALID_ARGUMENT
  end
  engine:describe(info)
  return C.GLM_OK
end

local require_pointer = macro(function(pointer, name, message)
  return quote
    status.refuse(message, pointer == nil, "%s is null: expected a pointer to receive the result", name)
  end
end)

local engine_of = macro(function(handle, message)
  return quote
    var engine = find_engine(handle)
    status.refuse(message, engine == nil, "engine is null or already freed: expected a handle from init_engine")
  in
    engine
  end
end)

local engine_or = macro(function(handle, otherwise)
  return quote
    var engine = find_engine(handle)
    if engine == nil then
      return otherwise
    end
  in
    engine
  end
end)

terra exports.engine_default_request(request : &C.engine_request)
  if request == nil then
    return
  end
  requests.default(request)
end

terra exports.engine_submit(
  handle : &C.glm_engine,
  request : &C.engine_request,
  request_id : &uint64,
  message : &C.glm_message
) : int32
  return engine_of(handle, message).loop:submit(request, request_id, message)
end

terra exports.engine_cancel(handle : &C.glm_engine, request_id : uint64, message : &C.glm_message) : int32
  return engine_of(handle, message).loop:cancel(request_id, message)
end

terra exports.engine_preempt(handle : &C.glm_engine, request_id : uint64, message : &C.glm_message) : int32
  return engine_of(handle, message).loop:preempt(request_id, message)
end

terra exports.engine_set_masks(handle : &C.glm_engine, masks : &C.engine_mask, num_masks : int32, message : &C.glm_message) : int32
  return engine_of(handle, message).loop:set_masks(masks, num_masks, message)
end

terra exports.engine_poll(handle : &C.glm_engine, events : &C.engine_event, capacity : int32, count : &int32) : int32
  var engine = find_engine(handle)
  if engine == nil or events == nil or count == nil or capacity < 0 then
    return C.GLM_INVALID_ARGUMENT
  end
  return engine.loop:poll(events, capacity, count)
end

terra exports.engine_wait(handle : &C.glm_engine, timeout_ns : int64) : int32
  return engine_or(handle, C.GLM_INVALID_ARGUMENT).loop:wait(timeout_ns)
end

terra exports.engine_event_fd(handle : &C.glm_engine) : int32
  return engine_or(handle, -1).loop.event_fd
end

terra exports.engine_take_kv_events(handle : &C.glm_engine, events : &C.engine_kv_event, tokens : &int32, capacity : int32, count : &int32) : int32
  var engine = find_engine(handle)
  if engine == nil or events == nil or tokens == nil or count == nil or capacity < 0 then
    return C.GLM_INVALID_ARGUMENT
  end
  return engine.loop:take_kv_events(events, tokens, capacity, count)
end

terra exports.engine_kv_event_fd(handle : &C.glm_engine) : int32
  return engine_or(handle, -1).loop:kv_event_fd()
end

terra exports.engine_resize_pool(handle : &C.glm_engine, num_pages : int32, message : &C.glm_message) : int32
  return engine_of(handle, message).loop:resize_pool(num_pages, message)
end

terra exports.engine_take_steps(handle : &C.glm_engine, steps : &C.engine_step, capacity : int32, count : &int32) : int32
  var engine = find_engine(handle)
  if engine == nil or steps == nil or count == nil or capacity < 0 then
    return C.GLM_INVALID_ARGUMENT
  end
  engine.loop:take_steps(steps, capacity, count)
  return C.GLM_OK
end

terra exports.engine_profile_begin(handle : &C.glm_engine, message : &C.glm_message) : int32
  return engine_of(handle, message):begin_profile(message)
end

terra exports.engine_profile_end(handle : &C.glm_engine, target : &&C.engine_text, message : &C.glm_message) : int32
  require_pointer(target, "text", message)
  @target = nil
  return engine_of(handle, message):end_profile(target, message)
end

terra exports.engine_read_rate(handle : &C.glm_engine, bytes_per_second : &double, message : &C.glm_message) : int32
  require_pointer(bytes_per_second, "bytes_per_second", message)
  return engine_of(handle, message):measure_read(bytes_per_second, message)
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
  require_pointer(state, "state", message)
  @state = nil
  var engine = engine_of(handle, message)
  var item : &Sequence
  status.try(engine.loop:prefill(tokens, num_tokens, all_positions ~= 0, logits, &item, message))
  @state = [&C.engine_state](handles.open([handles.state_kind], item, engine))
  if @state == nil then
    engine.loop:free_state(item)
    return status.fail(message, C.GLM_OUT_OF_MEMORY, "not enough host memory to create the state")
  end
  return C.GLM_OK
end

terra exports.decode_step(
  handle : &C.glm_engine,
  state : &C.engine_state,
  token : int32,
  logits : &float,
  message : &C.glm_message
) : int32
  return engine_of(handle, message).loop:decode_tokens(find_state(state), &token, 1, logits, message)
end

terra exports.decode_tokens(
  handle : &C.glm_engine,
  state : &C.engine_state,
  tokens : &int32,
  num_tokens : int32,
  logits : &float,
  message : &C.glm_message
) : int32
  return engine_of(handle, message).loop:decode_tokens(find_state(state), tokens, num_tokens, logits, message)
end

local terra find_states(states : &&C.engine_state, num_states : int32) : &&Sequence
  var items = [&&Sequence](C.malloc(num_states * sizeof([&Sequence]) + 1))
  if items ~= nil then
    for i = 0, num_states do
      items[i] = find_state(states[i])
    end
  end
  return items
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
  var engine = engine_of(handle, message)
  status.try(engine.loop:check_batch_arguments(num_states, states, sampling, num_steps, tokens, message))
  var items = find_states(states, num_states)
  status.fail_if(message, items == nil, C.GLM_OUT_OF_MEMORY, "not enough host memory to create %d states", num_states)
  var code = engine.loop:run_batch_decode(num_states, items, sampling, num_steps, tokens, message)
  C.free(items)
  return code
end

terra exports.free_request_state(handle : &C.glm_engine, state : &C.engine_state) : int32
  if state == nil then
    return C.GLM_OK
  end
  var engine = engine_or(handle, C.GLM_INVALID_ARGUMENT)
  var item = [&Sequence](handles.close([handles.state_kind], state, engine))
  if item == nil then
    return C.GLM_INVALID_ARGUMENT
  end
  engine.loop:free_state(item)
  return C.GLM_OK
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

return { exports = merge(exports, { report.exports }), probes = merge({}, { device_probes.probes, draft_probes.probes, loader_probes.probes, scheduler_probes.probes, weight_probes(Engine).probes }) }
