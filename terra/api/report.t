local abi = require("terra.base.abi")
local codes = require("terra.base.codes")
local device = require("terra.ranks.device")
local dtypes = require("terra.base.dtypes")
local gpus = require("terra.ranks.gpus")
local handles = require("terra.base.handles")
local inspect = require("terra.model.inspect")
local model = require("terra.model.model")
local options = require("terra.plan.options")
local plan = require("terra.plan.plan")
local profile = require("terra.ranks.profile")
local status = require("terra.base.status")
local text = require("terra.base.text")
local world_size = require("terra.ranks.world_size")
local writer = require("terra.base.json_writer")
local C = abi.C
local JsonWriter = writer.JsonWriter
local Model = model.Model
local Plan = plan.Plan

local struct Text {
  builder : text.StringBuilder
}

local terra close_text(made : &Text)
  made.builder:free()
  C.free(made)
end

local terra finish(out : &JsonWriter, target : &&C.engine_text, message : &C.glm_message) : int32
  out.text:append_byte(0)
  var result = [&Text](C.malloc(sizeof(Text)))
  if result == nil or out.text.has_failed then
    C.free(result)
    out:free()
    return status.fail(message, C.GLM_OUT_OF_MEMORY, "not enough host memory to write the report")
  end
  result.builder = out.text
  @target = [&C.engine_text](handles.open([handles.text_kind], result, nil))
  if @target == nil then
    close_text(result)
    return status.fail(message, C.GLM_OUT_OF_MEMORY, "not enough host memory to write the report")
  end
  return C.GLM_OK
end

local terra find_text(target : &C.engine_text) : &Text
  return [&Text](handles.find([handles.text_kind], target))
end

local terra engine_text_data(target : &C.engine_text) : rawstring
  var made = find_text(target)
  if made == nil then
    return nil
  end
  return [rawstring](made.builder.bytes.data)
end

local terra engine_text_size(target : &C.engine_text) : int64
  var made = find_text(target)
  if made == nil then
    return -1
  end
  return made.builder.bytes.size - 1
end

local terra engine_text_free(target : &C.engine_text) : int32
  if target == nil then
    return C.GLM_OK
  end
  var made = [&Text](handles.close([handles.text_kind], target, nil))
  if made == nil then
    return C.GLM_INVALID_ARGUMENT
  end
  close_text(made)
  return C.GLM_OK
end

local terra engine_inspect(model_dir : rawstring, target : &&C.engine_text, message : &C.glm_message) : int32
  status.refuse(message, target == nil, "text is null")
  @target = nil
  status.clear(message)
  var source : Model
  var code = source:read(model_dir, C.ENGINE_SPECULATE_OFF, true, message)
  if code == C.GLM_OK then
    var out : JsonWriter
    out:init()
    inspect.write(&out, &source)
    code = finish(&out, target, message)
  end
  source:close()
  return code
end

local expert_layouts = {
  { code = C.ENGINE_EXPERTS_TENSOR_PARALLEL, name = "tensor_parallel" },
  { code = C.ENGINE_EXPERTS_EXPERT_PARALLEL, name = "expert_parallel" },
}

local layout_name = codes.name_of(expert_layouts, "default")
local source_name = codes.name_of({
  { code = C.ENGINE_FROM_OPTION, name = "option" },
  { code = C.ENGINE_FROM_MODEL, name = "model" },
  { code = C.ENGINE_FROM_DEFAULT, name = "default" },
  { code = C.ENGINE_FROM_NUM_PAGES, name = "num_pages" },
  { code = C.ENGINE_FROM_MEMORY, name = "memory" },
}, "unknown")

local terra write_sizes(out : &JsonWriter, made : &Plan)
  out:integer_field("max_seq", made.options.max_seq)
  out:string_field("max_seq_from", source_name(made:max_seq_from()))
  out:integer_field("model_max_seq", made:positions())
  out:integer_field("max_batch", made.options.max_batch)
  out:string_field("max_batch_from", source_name(made:max_batch_from()))
end

local terra write_rank(out : &JsonWriter, made : &Plan, index : int32)
  var rank = made:rank(index)
  out:begin_object()
  out:integer_field("rank", index)
  escape
    for _, entry in ipairs(plan.RankPlan.entries) do
      emit quote out:integer_field([entry.field], rank.[entry.field]) end
    end
  end
  out:end_object()
end

local terra write_model(out : &JsonWriter, source : &Model)
  out:string_field("model_dir", source.directory)
  out:string_field("architecture", &source.config.architecture[0])
  out:integer_field("num_parameters", source.num_parameters)
  out:integer_field("num_parameters_with_nextn", source.num_parameters + source.num_skipped_parameters)
  out:integer_field("checkpoint_bytes", source.tensor_bytes)
  out:integer_field("checkpoint_bytes_with_nextn", source.tensor_bytes + source.skipped_tensor_bytes)
  out:boolean_field("has_weights", source.has_weights)
  source:write_prediction(out)
end

local terra write_cache(out : &JsonWriter, made : &Plan)
  out:string_field("kv_dtype", dtypes.option_name(made.kv_dtype))
  out:integer_field("kv_bytes_per_token", made:kv_bytes_per_token(made.kv_dtype))
  out:integer_field("kv_bytes_per_token_bf16", made:kv_bytes_per_token(C.GLM_DTYPE_BF16))
  out:integer_field("page_size", made.options.page_size)
  out:integer_field("page_bytes", made.page_bytes)
  out:integer_field("num_pages", made.num_pages)
  out:integer_field("tokens_of_context", [int64](made.num_pages) * made.options.page_size)
  out:integer_field("concurrent_requests", made:concurrent_requests())
end

local terra write_buffers(out : &JsonWriter, made : &Plan)
  var shape = made:buffer_shape()
  out:key("buffers")
  out:begin_object()
  escape
    for _, buffer in ipairs(plan.buffers) do
      emit quote out:integer_field([buffer.name], [buffer.bytes(`&shape)]) end
    end
  end
  out:end_object()
end

local terra write_plan(out : &JsonWriter, made : &Plan, kind : rawstring)
  out:begin_object()
  write_model(out, made.model)
  out:string_field("device", kind)
  out:integer_field("world_size", made.options.world_size)
  out:string_field("expert_layout", layout_name(made.options.expert_layout))
  write_sizes(out, made)
  out:integer_field("max_step_tokens", made.options.max_step_tokens)
  out:integer_field("step_budget_ms", made.step_budget_ms)
  out:integer_field("max_draft_tokens", made.options.max_draft_tokens)
  write_cache(out, made)
  out:integer_field("memory_free_bytes", made.device.info.memory_free_bytes)
  out:integer_field("memory_limit_bytes", made.memory_available)
  out:integer_field("needed_bytes", made.needed_bytes)
  out:boolean_field("fits", made.fits)
  out:string_field("reason", &made.reason[0])
  out:string_field("advice", &made.advice[0])
  write_buffers(out, made)
  out:key("ranks")
  out:begin_array()
  for i = 0, made.options.world_size do
    write_rank(out, made, i)
  end
  out:end_array()
  out:end_object()
end

local terra plan_on(source : &Model, library : &device.Library, given : &C.engine_options, target : &&C.engine_text, message : &C.glm_message) : int32
  var made : Plan
  status.try(world_size.plan(&made, source, library, given, message))
  var out : JsonWriter
  out:init()
  write_plan(&out, &made, &library.kind[0])
  return finish(&out, target, message)
end

local terra plan_model(source : &Model, given : &C.engine_options, target : &&C.engine_text, message : &C.glm_message) : int32
  if given.synthetic ~= 0 then
    status.try(source:read_synthetic(given.model_dir, given.num_layers, given.speculate, message))
  else
    status.try(source:read(given.model_dir, given.speculate, false, message))
    status.try(source.checkpoint.problems:report(source.directory, message))
  end
  var library : device.Library
  if given.device_memory_bytes > 0 then
    status.try(library:open_for_plans(given.device, given.library_dir, message))
  else
    status.try(library:open(given.device, given.library_dir, message))
  end
  var code = plan_on(source, &library, given, target, message)
  library:close()
  return code
end

local terra engine_plan(given : &C.engine_options, target : &&C.engine_text, message : &C.glm_message) : int32
  status.refuse(message, target == nil, "text is null")
  @target = nil
  status.clear(message)
  status.try(options.check_struct(given, message))
  var source : Model
  source:init()
  var code = plan_model(&source, given, target, message)
  source:close()
  return code
end

local terra engine_find_gpus(target : &&C.engine_text, message : &C.glm_message) : int32
  status.refuse(message, target == nil, "text is null")
  @target = nil
  status.clear(message)
  var found : gpus.Gpus
  status.try(found:find("", message))
  var out : JsonWriter
  out:init()
  out:begin_object()
  out:integer_field("num_gpus", found.count)
  out:string_field("driver", &found.driver[0])
  out:string_field("device", device.automatic_kind(&found))
  out:end_object()
  return finish(&out, target, message)
end

local terra engine_default_options(target : &C.engine_options)
  if target ~= nil then
    options.default(target)
  end
end

local terra write_profile(made : &profile.Profile, target : &&C.engine_text, message : &C.glm_message) : int32
  var out : JsonWriter
  out:init()
  out:begin_object()
  out:integer_field("num_steps", made.num_steps)
  out:key("operations")
  out:begin_array()
  for i = 0, made.num_totals do
    var total = &made.totals[i]
    out:begin_object()
    var name : int8[64]
    C.snprintf(&name[0], 64, "%s%s", terralib.select(total.is_of_prediction, "prediction: ", ""), total.name)
    out:string_field("name", &name[0])
    out:integer_field("num_calls", total.num_calls)
    out:integer_field("nanoseconds", total.nanoseconds)
    out:end_object()
  end
  out:end_array()
  out:end_object()
  return finish(&out, target, message)
end

return {
  write_profile = write_profile,
  exports = {
    engine_default_options = engine_default_options,
    engine_find_gpus = engine_find_gpus,
    engine_inspect = engine_inspect,
    engine_plan = engine_plan,
    engine_text_data = engine_text_data,
    engine_text_free = engine_text_free,
    engine_text_size = engine_text_size,
  },
}
