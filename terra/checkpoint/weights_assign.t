local abi = require("terra.base.abi")
local layout = require("terra.checkpoint.weights_layout")
local modules = require("terra.checkpoint.modules")
local status = require("terra.base.status")
local C = abi.C
local Layout = layout.Layout
local LayerWeights = layout.LayerWeights
local ModelWeights = layout.ModelWeights
local slot = modules.slot

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
    count, &weights.experts_gate_up, @self.types:at(layer, slot.experts_gate_up), C.GLM_MATRIX_GATE_UP, 2 * width, hidden,
    &weights.experts_gate_up_stride, &weights.experts_gate_up_scale_stride
  ))
  return at:matrices(
    count, &weights.experts_down, @self.types:at(layer, slot.experts_down), C.GLM_MATRIX_LINEAR, hidden, width,
    &weights.experts_down_stride, &weights.experts_down_scale_stride
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
