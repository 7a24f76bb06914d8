local abi = require("terra.base.abi")
local batch = require("terra.scheduling.batch")
local buffers = require("terra.plan.buffers")
local config = require("terra.checkpoint.config")
local dtypes = require("terra.base.dtypes")
local model = require("terra.model.model")
local numbers = require("terra.base.numbers")
local options = require("terra.plan.options")
local status = require("terra.base.status")
local slot = require("terra.model.weights").slot
local weights = require("terra.model.layout")
local C = abi.C

local plan = { RankBuffers = buffers.RankBuffers, BufferShape = buffers.BufferShape, buffers = buffers.table }

local smaller, greater = numbers.smaller(int32), numbers.greater(int32)

local max_slots = 2 ^ 31 - 1
local most_decode_rows = 256
local biases_per_row = 16
local least_biases = 1024
local hundredths_of_shared_memory = 90
local hundredths_of_own_memory = 97
local budget_of_own_devices = 80

local struct RankPlan {
  weight_bytes : int64
  kv_bytes : int64
  buffer_bytes : int64
  workspace_bytes : int64
  host_bytes : int64
  total_bytes : int64
  memory_bytes : int64
}
plan.RankPlan = RankPlan

local struct DeviceFacts {
  backend : &C.glm_backend
  info : C.glm_device_info
  kind : rawstring
  shares_memory : bool
  is_native_gpu : bool
}
plan.DeviceFacts = DeviceFacts

local struct Plan {
  model : &model.Model
  device : DeviceFacts
  wanted : C.engine_options
  options : C.engine_options
  activation_dtype : int32
  kv_dtype : int32
  uses_graphs : bool
  plans_ahead : bool
  step_budget_ms : int32
  merges_shared : bool
  fewest_scattered_rows : int32
  caches_answers : bool
  memory_available : int64
  pages_per_request : int32
  wanted_pages : int64
  num_pages : int32
  page_bytes : int64
  weight_bytes : int64
  buffer_bytes : int64
  workspace_bytes : int64
  host_bytes : int64
  workspace : C.glm_workspace_shape
  shape : batch.StepShape
  needed_bytes : int64
  fits : bool
  reason : int8[512]
  advice : int8[128]
}
plan.Plan = Plan

terra Plan:layout(rank : int32) : weights.Layout
  return weights.Layout {
    config = &self.model.config,
    table = &self.model.modules.table,
    types = &self.model.types,
    backend = self.device.backend,
    world_size = self.options.world_size,
    rank = rank,
    expert_layout = self.options.expert_layout,
    merges_shared = self.merges_shared,
    keeps_head_scales = self.kv_dtype == C.GLM_DTYPE_F8_E4M3 and self.model.has_head_scales,
  }
end

terra Plan:num_merged() : int32
  return terralib.select(self.merges_shared, 1, 0)
end

terra Plan:cache(num_pages : int32) : C.glm_kv_cache
  var layout = self:layout(0)
  var cache : C.glm_kv_cache
  cache.dtype = self.kv_dtype
  cache.num_layers = weights.num_loaded_layers(&self.model.config)
  cache.num_pages = num_pages
  cache.page_size = self.options.page_size
  cache.num_kv_heads = layout:num_local_kv_heads()
  cache.head_dim = self.model.config.head_dim
  cache.data = nil
  cache.key_scale = nil
  cache.value_scale = nil
  return cache
end

terra Plan:max_scattered_rows() : int64
  var o, fewest = &self.options, self.fewest_scattered_rows
  return terralib.select(o.world_size > 1 and fewest > 0 and o.max_step_tokens >= fewest, o.max_step_tokens, 0)
end

terra Plan:joint_width() : int64
  return terralib.select(self.shape:drafts_with_layer(), 2 * [int64](self.model.config.hidden_size), [int64](0))
end

terra Plan:joint_codes_width() : int64
  if self.shape:drafts_with_layer() and @self.model.types:at(self.model.config.num_layers, [slot.joint]) == C.GLM_DTYPE_F8_E4M3 then
    return self:joint_width()
  end
  return 0
end

terra Plan:buffer_shape() : buffers.BufferShape
  var c, o, layout = &self.model.config, &self.options, self:layout(0)
  return buffers.BufferShape {
    world_size = o.world_size,
    max_tokens = o.max_step_tokens,
    max_scattered_rows = self:max_scattered_rows(),
    activation_bytes = dtypes.bytes(self.activation_dtype),
    hidden_size = c.hidden_size,
    head_dim = c.head_dim,
    num_heads = layout:num_local_heads(),
    num_kv_heads = layout:num_local_kv_heads(),
    mlp_width = layout:local_mlp_width(),
    top_k = c.top_k + self:num_merged(),
    max_logit_rows = o.max_logit_rows,
    local_vocab_size = layout:local_vocab_size(),
    vocab_size = c.vocab_size,
    max_sequences = o.max_batch,
    max_seq = o.max_seq,
    rotary_dim = c.rotary_dim,
    joint_width = self:joint_width(),
    joint_codes_width = self:joint_codes_width(),
    workspace_bytes = self.workspace_bytes,
    step = self.shape,
  }
end

terra Plan:check_page_tables(message : &C.glm_message) : int32
  var o = &self.options
  status.refuse(message, [int64](o.max_batch) * self.pages_per_request > max_slots, "max_batch %d, max_seq %d and page_size %d require page tables with more than %lld entries", o.max_batch, o.max_seq, o.page_size, [int64](max_slots))
  return C.GLM_OK
end

terra Plan:rows_per_sequence() : int32
  return 1 + self.options.max_draft_tokens
end

terra Plan:max_decode_rows() : int32
  var max_batch = self.options.max_batch
  return smaller(max_batch * self:rows_per_sequence(), greater(max_batch, most_decode_rows))
end

terra Plan:shape_step()
  var o = &self.options
  self.pages_per_request = (o.max_seq + o.page_size - 1) / o.page_size
  self.shape.max_step_tokens = o.max_step_tokens
  self.shape.max_sequences = o.max_batch
  self.shape.rows_per_sequence = self:rows_per_sequence()
  self.shape.max_decode_rows = self:max_decode_rows()
  self.shape.max_pages_per_sequence = self.pages_per_request
  self.shape.max_logit_rows = o.max_logit_rows
  self.shape.max_draft_rows = terralib.select(self.model.config.num_prediction_layers > 0, smaller(o.max_batch, o.max_logit_rows), 0)
  self.shape.max_biases = greater(biases_per_row * o.max_logit_rows, least_biases)
  self.shape.max_masks = smaller(o.max_logit_rows, self.shape.max_decode_rows)
  self.shape.vocab_size = self.model.config.vocab_size
end

terra Plan:shape_workspace(message : &C.glm_message) : int32
  var c, o, layout = &self.model.config, &self.options, self:layout(0)
  var w = &self.workspace
  w.struct_size = sizeof(C.glm_workspace_shape)
  w.world_size = o.world_size
  w.max_step_tokens = o.max_step_tokens
  w.max_decode_rows = self.shape.max_decode_rows
  w.rows_per_sequence = self.shape.rows_per_sequence
  w.max_context = self.pages_per_request * o.page_size
  w.max_logit_rows = o.max_logit_rows
  w.hidden_size = c.hidden_size
  w.num_heads = layout:num_local_heads()
  w.num_kv_heads = layout:num_local_kv_heads()
  w.head_dim = c.head_dim
  w.intermediate_size = layout:local_mlp_width()
  w.moe_intermediate_size = layout:local_expert_width()
  w.num_local_experts = layout:num_local_experts() + self:num_merged()
  w.top_k = c.top_k + self:num_merged()
  w.vocab_size = c.vocab_size
  var code = self.device.backend.workspace_bytes(w, &self.workspace_bytes)
  status.fail_if(message, code ~= C.GLM_OK, code, "the device does not support a workspace for max_step_tokens %d and max_seq %d", o.max_step_tokens, o.max_seq)
  return C.GLM_OK
end

terra Plan:choose_course(message : &C.glm_message) : int32
  var o, info = &self.options, &self.device.info
  status.fail_if(message, o.graphs > 0 and info.supports_graphs == 0, C.GLM_NOT_SUPPORTED, "graphs is 1, but the device (%s) cannot capture graphs", &info.name[0])
  self.uses_graphs = info.supports_graphs ~= 0 and o.graphs ~= 0 and o.check_operations == 0
  var layout = self:layout(0)
  self.merges_shared = info.merges_shared_expert ~= 0 and layout:can_merge_shared()
  self.caches_answers = info.has_one_attention ~= 0
  self.fewest_scattered_rows = info.fewest_scattered_rows
  self.plans_ahead = o.plan_ahead > 0 or (o.plan_ahead < 0 and info.is_asynchronous ~= 0)
  self.step_budget_ms = o.step_budget_ms
  if o.step_budget_ms < 0 then
    self.step_budget_ms = terralib.select(info.is_asynchronous ~= 0, budget_of_own_devices, 0)
  end
  status.refuse(message, info.page_size_multiple > 0 and o.page_size % info.page_size_multiple ~= 0, "page_size is %d; the device (%s) requires a multiple of %d tokens", o.page_size, &info.name[0], info.page_size_multiple)
  return C.GLM_OK
end

terra Plan:measure_page(message : &C.glm_message) : int32
  var cache = self:cache(1)
  var code = self.device.backend.kv_page_bytes(&cache, &self.page_bytes)
  var default_dtype = self.device.info.default_kv_dtype
  var is_usual = self.kv_dtype == default_dtype or self.kv_dtype == C.GLM_DTYPE_F8_E4M3
  status.fail_if(
    message, code == C.GLM_NOT_SUPPORTED and not is_usual, code, "device %s does not support kv_dtype %s; use %s or fp8_e4m3", self.device.kind, dtypes.option_name(self.kv_dtype),
    dtypes.option_name(default_dtype)
  )
  status.fail_if(
    message, code ~= C.GLM_OK or self.page_bytes <= 0, C.GLM_NOT_SUPPORTED,
    "the device does not support KV cache pages with kv_dtype %s, page_size %d, %d KV heads and head_dim %d",
    dtypes.option_name(self.kv_dtype),
    cache.page_size,
    cache.num_kv_heads,
    cache.head_dim
  )
  return C.GLM_OK
end

terra Plan:shape_model(cache : &C.glm_kv_cache, model : &weights.ModelWeights) : C.glm_model_shape
  var shape : C.glm_model_shape
  C.memset(&shape, 0, sizeof(C.glm_model_shape))
  shape.struct_size = sizeof(C.glm_model_shape)
  shape.world_size = self.options.world_size
  shape.num_heads = model.num_local_heads
  shape.rotary_dim = self.model.config.rotary_dim
  shape.vocab_size = self.model.config.vocab_size
  shape.top_k = self.model.config.top_k
  shape.num_local_experts = model.num_local_experts
  shape.cache = cache
  shape.embedding = &model.embedding
  shape.head = &model.head
  return shape
end

local terra present(matrix : &C.glm_matrix) : &C.glm_matrix
  return terralib.select(matrix.rows > 0, matrix, nil)
end

terra Plan:check_layer(shape : &C.glm_model_shape, layer : &weights.LayerWeights, message : &C.glm_message) : int32
  shape.merges_shared_expert = terralib.select(layer.merges_shared, 1, 0)
  escape
    for _, name in ipairs(weights.layer_matrices) do
      emit quote shape.[name] = present([&C.glm_matrix](&layer.[name])) end
    end
    for _, copy in ipairs(weights.prediction_copies) do
      emit quote
        if layer.[copy.field].rows > 0 then
          shape.[copy.copy_of] = &layer.[copy.field]
        end
      end
    end
  end
  var refusal : C.glm_message
  refusal.text[0] = 0
  var code = self.device.backend.check_model(shape, &refusal)
  status.fail_if(
    message, code ~= C.GLM_OK, code, "%s: device %s cannot run this model with world_size %d: %s",
    self.model.directory, self.device.kind, self.options.world_size, &refusal.text[0]
  )
  return C.GLM_OK
end

terra Plan:check_layers(model : &weights.ModelWeights, message : &C.glm_message) : int32
  var cache = self:cache(1)
  var shape = self:shape_model(&cache, model)
  for i = 0, weights.num_loaded_layers(&self.model.config) do
    status.try(self:check_layer(&shape, &model.layers[i], message))
  end
  return C.GLM_OK
end

terra Plan:measure_weights(message : &C.glm_message) : int32
  var layout = self:layout(0)
  var unbound : weights.ModelWeights
  status.try(weights.assign(&layout, nil, &unbound, &self.weight_bytes, message))
  var code = self:check_layers(&unbound, message)
  weights.free(&unbound)
  return code
end

terra Plan:num_sharing() : int64
  if self.device.shares_memory then
    return self.options.world_size
  end
  return 1
end

terra Plan:fixed_bytes() : int64
  var fixed = (self.weight_bytes + self.buffer_bytes) * self:num_sharing()
  if self.device.shares_memory then
    fixed = fixed + self.host_bytes
  end
  return fixed
end

terra Plan:room_for_pages() : int64
  return (self.memory_available - self:fixed_bytes()) / (self.page_bytes * self:num_sharing())
end

require("terra.plan.refusals")(Plan)
require("terra.plan.sizes")(Plan, max_slots)

terra Plan:choose_pages()
  var room, most_pages = self:room_for_pages(), self:most_pages_of_pool()
  self.wanted_pages = [int64](self.options.max_batch) * self.pages_per_request
  var num_pages = self.wanted_pages
  if self.options.num_pages > 0 then
    num_pages = self.options.num_pages
  elseif num_pages > most_pages then
    num_pages = most_pages
  end
  var most = [int64](max_slots) / self.options.page_size
  if self.options.num_pages == 0 and num_pages > most then
    num_pages = most
  end
  if self.options.num_pages > 0 and num_pages < self.pages_per_request then
    self:refuse_pool(num_pages)
  elseif num_pages > most then
    self:refuse("num_pages times page_size exceeds 2147483647 tokens", "Use a smaller num_pages.")
  elseif num_pages < self.pages_per_request then
    self:refuse_memory(self.pages_per_request)
    num_pages = 0
  elseif num_pages > room then
    self:refuse_memory(num_pages)
  end
  self.num_pages = [int32](num_pages)
  if self.fits then
    self.needed_bytes = self:bytes_with(num_pages)
  end
end

terra Plan:choose_memory(message : &C.glm_message) : int32
  var info = &self.device.info
  self.memory_available = self.options.memory_limit_bytes
  if self.memory_available > info.memory_free_bytes then
    return self:refuse_limit(message)
  end
  if self.memory_available == 0 then
    var hundredths = self.options.memory_limit_percent
    if hundredths == 0 then
      hundredths = terralib.select(self.device.shares_memory, hundredths_of_shared_memory, hundredths_of_own_memory)
    end
    self.memory_available = info.memory_free_bytes / 100 * hundredths
  end
  return C.GLM_OK
end

terra Plan:make(
  source : &model.Model,
  device : &DeviceFacts,
  given : &C.engine_options,
  message : &C.glm_message
) : int32
  C.memset(self, 0, sizeof(Plan))
  self.model = source
  self.device = @device
  self.fits = true
  status.try(options.resolve(given, &source.config, &self.options, message))
  self.wanted = @given
  self.activation_dtype = device.info.activation_dtype
  self.kv_dtype = self.options.kv_dtype
  if self.kv_dtype < 0 then
    self.kv_dtype = device.info.default_kv_dtype
  end
  status.try(self:choose_course(message))
  status.try(self:choose_memory(message))
  var layout = self:layout(0)
  status.try(layout:check(message))
  status.try(self:measure_page(message))
  status.try(self:measure_weights(message))
  status.try(self:choose_sizes(message))
  status.try(self:check_page_tables(message))
  self:choose_pages()
  return C.GLM_OK
end

terra Plan:require_fit(message : &C.glm_message) : int32
  if self.fits then
    return C.GLM_OK
  end
  return status.fail(message, C.GLM_OUT_OF_MEMORY, "%s: does not fit: %s. %s", self.model.directory, &self.reason[0], &self.advice[0])
end

terra Plan:rank(rank : int32) : RankPlan
  var shape = self:buffer_shape()
  var result : RankPlan
  C.memset(&result, 0, sizeof(RankPlan))
  result.weight_bytes = self.weight_bytes
  result.kv_bytes = self.page_bytes * self.num_pages
  result.buffer_bytes = buffers.bytes(&shape)
  result.workspace_bytes = self.workspace_bytes
  if rank == 0 then
    result.host_bytes = self.host_bytes
  end
  result.total_bytes = result.weight_bytes + result.kv_bytes + result.buffer_bytes
  result.memory_bytes = self.memory_available / self:num_sharing()
  return result
end

terra Plan:kv_bytes_per_token(dtype : int32) : int64
  var c = &self.model.config
  return 2 * [int64](weights.num_loaded_layers(c)) * c.num_kv_heads * c.head_dim * dtypes.bytes(dtype)
end

terra Plan:concurrent_requests() : int32
  return smaller(self.num_pages / self.pages_per_request, self.options.max_batch)
end

return plan
