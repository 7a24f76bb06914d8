local abi = require("terra.base.abi")
local config = require("terra.checkpoint.config")
local modules = require("terra.model.modules")
local rows = require("terra.model.table")
local status = require("terra.base.status")
local C = abi.C
local ModelConfig = config.ModelConfig
local LayerWeights, ModelWeights = rows.LayerWeights, rows.ModelWeights
local slot = rows.slot

local layout = {}

layout.LayerWeights = LayerWeights
layout.ModelWeights = ModelWeights

local unset = -1

local struct WeightTypes {
  codes : &int32
}
layout.WeightTypes = WeightTypes
layout.unset = unset

terra WeightTypes:init(num_layers : int32) : bool
  var count = [int64](num_layers + 1) * rows.num_slots
  self.codes = [&int32](C.malloc(count * sizeof(int32)))
  if self.codes == nil then
    return false
  end
  for i = 0, count do
    self.codes[i] = unset
  end
  return true
end

terra WeightTypes:free()
  C.free(self.codes)
  self.codes = nil
end

terra WeightTypes:at(layer : int32, wanted : int32) : &int32
  var row : int64 = layer - [rows.outside_layers]
  return &self.codes[row * rows.num_slots + wanted]
end

terra WeightTypes:embedding() : int32
  return @self:at([rows.outside_layers], slot.embedding)
end

terra WeightTypes:head() : int32
  var own = @self:at([rows.outside_layers], slot.head)
  if own == unset then
    return self:embedding()
  end
  return own
end

terra WeightTypes:fill(list : &modules.ModuleList)
  for i = 0, list.list.size do
    var module = list.list:at(i)
    if not module.is_skipped and not module.weight.is_vector and @self:at(module.layer, module.weight.slot) == unset then
      @self:at(module.layer, module.weight.slot) = module:weight_dtype(list.config.plain_dtype)
    end
  end
end

local struct Layout {
  config : &ModelConfig
  types : &WeightTypes
  backend : &C.glm_backend
  world_size : int32
  rank : int32
  expert_layout : int32
  merges_shared : bool
  keeps_head_scales : bool
}
layout.Layout = Layout

terra Layout:is_expert_parallel() : bool
  return self.expert_layout == C.ENGINE_EXPERTS_EXPERT_PARALLEL
end

terra Layout:num_local_experts() : int32
  if self:is_expert_parallel() then
    return self.config.num_experts / self.world_size
  end
  return self.config.num_experts
end

terra Layout:experts_begin() : int32
  if self:is_expert_parallel() then
    return self.rank * self:num_local_experts()
  end
  return 0
end

terra Layout:local_expert_width() : int32
  if self:is_expert_parallel() then
    return self.config.moe_intermediate_size
  end
  return self.config.moe_intermediate_size / self.world_size
end

terra Layout:head_is_split() : bool
  return self.world_size > 1 and self.config.vocab_size % self.world_size == 0
end

terra Layout:local_vocab_size() : int32
  if self:head_is_split() then
    return self.config.vocab_size / self.world_size
  end
  return self.config.vocab_size
end

terra Layout:num_local_heads() : int32
  return self.config.num_heads / self.world_size
end

terra Layout:num_local_kv_heads() : int32
  return self.config.num_kv_heads / self.world_size
end

terra Layout:local_dense_width() : int32
  return self.config.intermediate_size / self.world_size
end

terra Layout:can_merge_shared() : bool
  var c = self.config
  return c.num_shared_experts > 0 and c:has_moe_layers() and c:shared_width() == c.moe_intermediate_size
end

terra Layout:merges_shared_in(layer : int32) : bool
  var has_equal_gates = @self.types:at(layer, slot.gate_up) == @self.types:at(layer, slot.experts_gate_up)
  return self.merges_shared and has_equal_gates and @self.types:at(layer, slot.down) == @self.types:at(layer, slot.experts_down)
end

terra Layout:local_shared_width() : int32
  return self.config:shared_width() / self.world_size
end

terra Layout:local_mlp_width() : int32
  var width = 0
  if self.config:has_dense_layers() then
    width = self:local_dense_width()
  end
  if self.config:has_moe_layers() and self:local_shared_width() > width then
    width = self:local_shared_width()
  end
  return width
end

local terra check_split(name : rawstring, value : int32, world_size : int32, message : &C.glm_message) : int32
  if value % world_size ~= 0 then
    return status.fail(
      message,
      C.GLM_INVALID_ARGUMENT,
      "%s is %d, which is not divisible by world_size %d",
      name,
      value,
      world_size
    )
  end
  return C.GLM_OK
end

terra layout.resolve_expert_layout(model : &ModelConfig, world_size : int32, wanted : int32) : int32
  if wanted ~= C.ENGINE_EXPERTS_DEFAULT then
    return wanted
  elseif model.num_experts % world_size == 0 then
    return C.ENGINE_EXPERTS_EXPERT_PARALLEL
  end
  return C.ENGINE_EXPERTS_TENSOR_PARALLEL
end

terra Layout:check(message : &C.glm_message) : int32
  var model, world_size = self.config, self.world_size
  status.try(check_split("num_attention_heads", model.num_heads, world_size, message))
  status.try(check_split("num_key_value_heads", model.num_kv_heads, world_size, message))
  if model:has_dense_layers() then
    status.try(check_split("intermediate_size", model.intermediate_size, world_size, message))
  end
  if not model:has_moe_layers() then
    return C.GLM_OK
  end
  status.try(check_split(
    "n_shared_experts * moe_intermediate_size", model:shared_width(), world_size, message
  ))
  if self:is_expert_parallel() then
    return check_split("n_routed_experts (expert_layout expert_parallel)", model.num_experts, world_size, message)
  end
  return check_split("moe_intermediate_size (expert_layout tensor_parallel)", model.moe_intermediate_size, world_size, message)
end

local alignment = 256

local struct Cursor {
  base : &int8
  offset : int64
  backend : &C.glm_backend
  message : &C.glm_message
}

terra Cursor:take(bytes : int64) : &int8
  var memory = self.base + self.offset
  self.offset = (self.offset + bytes + alignment - 1) / alignment * alignment
  return memory
end

terra Cursor:vector(count : int32) : &float
  return [&float](self:take([int64](count) * sizeof(float)))
end

terra Cursor:measure(matrix : &C.glm_matrix, bytes : &int64) : int32
  var code = self.backend.matrix_bytes(matrix, bytes)
  if code ~= C.GLM_OK then
    return status.fail(
      self.message,
      code,
      "the device does not support a matrix with %d rows, %d columns, dtype %d and role %d",
      matrix.rows,
      matrix.columns,
      matrix.dtype,
      matrix.role
    )
  end
  return C.GLM_OK
end

local terra shape_matrix(matrix : &C.glm_matrix, dtype : int32, role : int32, rows : int32, columns : int32)
  C.memset(matrix, 0, sizeof(C.glm_matrix))
  matrix.dtype = dtype
  matrix.role = role
  matrix.rows = rows
  matrix.columns = columns
end

terra Cursor:matrix(matrix : &C.glm_matrix, dtype : int32, role : int32, rows : int32, columns : int32, has_bias : bool) : int32
  shape_matrix(matrix, dtype, role, rows, columns)
  var bytes : int64 = 0
  status.try(self:measure(matrix, &bytes))
  matrix.data = self:take(bytes)
  if dtype == C.GLM_DTYPE_F8_E4M3 then
    matrix.row_scale = self:vector(rows)
  end
  if has_bias then
    matrix.bias = self:vector(rows)
  end
  return C.GLM_OK
end

terra Cursor:matrices(
  count : int32,
  matrix : &C.glm_matrix,
  dtype : int32,
  role : int32,
  rows : int32,
  columns : int32,
  stride : &int64,
  scale_stride : &int64
) : int32
  shape_matrix(matrix, dtype, role, rows, columns)
  status.try(self:measure(matrix, stride))
  @scale_stride = 0
  matrix.data = self:take(@stride * count)
  if dtype == C.GLM_DTYPE_F8_E4M3 then
    @scale_stride = [int64](rows) * sizeof(float)
    matrix.row_scale = [&float](self:take(@scale_stride * count))
  end
  return C.GLM_OK
end

local terra assign_mlp(self : &Layout, at : &Cursor, layer : int32, weights : &LayerWeights, width : int32) : int32
  var hidden = self.config.hidden_size
  status.try(at:matrix(&weights.gate_up, @self.types:at(layer, slot.gate_up), C.GLM_MATRIX_GATE_UP, 2 * width, hidden, false))
  return at:matrix(&weights.down, @self.types:at(layer, slot.down), C.GLM_MATRIX_LINEAR, hidden, width, false)
end

local terra assign_experts(self : &Layout, at : &Cursor, layer : int32, weights : &LayerWeights) : int32
  var hidden, width, count = self.config.hidden_size, self:local_expert_width(), self:num_local_experts()
  status.try(at:matrix(&weights.router, @self.types:at(layer, slot.router), C.GLM_MATRIX_LINEAR, self.config.num_experts, hidden, false))
  weights.selection_bias = at:vector(self.config.num_experts)
  weights.merges_shared = self:merges_shared_in(layer)
  status.try(at:matrices(
    count, &weights.experts_gate_up.first, @self.types:at(layer, slot.experts_gate_up), C.GLM_MATRIX_GATE_UP, 2 * width, hidden,
    &weights.experts_gate_up.stride, &weights.experts_gate_up.scale_stride
  ))
  return at:matrices(
    count, &weights.experts_down.first, @self.types:at(layer, slot.experts_down), C.GLM_MATRIX_LINEAR, hidden, width,
    &weights.experts_down.stride, &weights.experts_down.scale_stride
  )
end

local terra assign_attention(self : &Layout, at : &Cursor, layer : int32, weights : &LayerWeights) : int32
  var model = self.config
  var query_width = self:num_local_heads() * model.head_dim
  var qkv_rows = query_width + 2 * self:num_local_kv_heads() * model.head_dim
  weights.input_norm = at:vector(model.hidden_size)
  weights.post_norm = at:vector(model.hidden_size)
  if model.use_qk_norm then
    weights.query_norm = at:vector(model.head_dim)
    weights.key_norm = at:vector(model.head_dim)
  end
  status.try(at:matrix(
    &weights.qkv, @self.types:at(layer, slot.qkv), C.GLM_MATRIX_LINEAR, qkv_rows, model.hidden_size, model.attention_bias
  ))
  return at:matrix(&weights.output, @self.types:at(layer, slot.output), C.GLM_MATRIX_LINEAR, model.hidden_size, query_width, false)
end

local terra assign_layer(self : &Layout, at : &Cursor, layer : int32, weights : &LayerWeights) : int32
  C.memset(weights, 0, sizeof(LayerWeights))
  weights.is_moe = layer >= self.config.first_k_dense_replace
  status.try(assign_attention(self, at, layer, weights))
  if not weights.is_moe then
    return assign_mlp(self, at, layer, weights, self:local_dense_width())
  end
  status.try(assign_experts(self, at, layer, weights))
  if self.config.num_shared_experts == 0 then
    return C.GLM_OK
  end
  return assign_mlp(self, at, layer, weights, self:local_shared_width())
end

local terra assign_model(self : &Layout, at : &Cursor, model : &ModelWeights) : int32
  var c = self.config
  model.head_is_split = self:head_is_split()
  model.experts_begin = self:experts_begin()
  model.num_local_experts = self:num_local_experts()
  model.num_local_heads = self:num_local_heads()
  model.num_local_kv_heads = self:num_local_kv_heads()
  model.local_vocab_size = self:local_vocab_size()
  status.try(at:matrix(&model.embedding, self.types:embedding(), C.GLM_MATRIX_TABLE, c.vocab_size, c.hidden_size, false))
  model.final_norm = at:vector(c.hidden_size)
  status.try(at:matrix(&model.head, self.types:head(), C.GLM_MATRIX_LINEAR, model.local_vocab_size, c.hidden_size, false))
  if self.keeps_head_scales then
    model.key_scale = at:vector(c.num_layers * model.num_local_kv_heads)
    model.value_scale = at:vector(c.num_layers * model.num_local_kv_heads)
  end
  for layer = 0, c.num_layers do
    status.try(assign_layer(self, at, layer, &model.layers[layer]))
  end
  return C.GLM_OK
end

terra layout.assign(self : &Layout, base : &int8, model : &ModelWeights, bytes : &int64, message : &C.glm_message) : int32
  var at = Cursor { base = base, offset = 0, backend = self.backend, message = message }
  C.memset(model, 0, sizeof(ModelWeights))
  model.layers = [&LayerWeights](C.malloc(self.config.num_layers * sizeof(LayerWeights)))
  if model.layers == nil then
    return status.fail(message, C.GLM_OUT_OF_MEMORY, "not enough host memory for the weight table of %d layers", self.config.num_layers)
  end
  var code = assign_model(self, &at, model)
  @bytes = at.offset
  if code ~= C.GLM_OK then
    C.free(model.layers)
    model.layers = nil
  end
  return code
end

terra layout.free(model : &ModelWeights)
  C.free(model.layers)
  model.layers = nil
end

return layout
