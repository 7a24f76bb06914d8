local abi = require("terra.base.abi")
local dtypes = require("terra.base.dtypes")
local head_scales = require("terra.model.head_scales")
local layout = require("terra.model.layout")
local rows = require("terra.model.table")
local safetensors = require("terra.checkpoint.safetensors")
local status = require("terra.base.status")
local C = abi.C
local Layout = layout.Layout
local LayerWeights = layout.LayerWeights
local ModelWeights = layout.ModelWeights
local TensorView = safetensors.TensorView

local place = {}

local struct Progress {
  report : C.engine_progress_function
  context : &opaque
  bytes_done : int64
  bytes_total : int64
}
place.Progress = Progress

terra Progress:add(bytes : int64)
  self.bytes_done = self.bytes_done + bytes
  if self.report ~= nil then
    self.report(self.context, self.bytes_done, self.bytes_total, "weights")
  end
end

local struct Placer {
  layout : &Layout
  checkpoint : &safetensors.Checkpoint
  device : &C.glm_device
  progress : &Progress
  message : &C.glm_message
  layer : int32
  expert : int32
}

terra Placer:name(target : rawstring, capacity : int64, format : rawstring, suffix : rawstring)
  var size = C.snprintf(target, capacity, format, self.layer, self.expert)
  if size >= 0 and size < capacity then
    C.snprintf(target + size, capacity - size, "%s", suffix)
  end
end

terra Placer:find(format : rawstring, suffix : rawstring, view : &&TensorView) : int32
  var name : int8[128]
  self:name(&name[0], 128, format, suffix)
  @view = self.checkpoint:find(&name[0])
  if @view == nil then
    return status.fail(self.message, C.GLM_INVALID_CHECKPOINT, "%s: %s: the tensor is missing", self.checkpoint.directory, &name[0])
  end
  return C.GLM_OK
end

terra Placer:failed(code : int32, view : &TensorView) : int32
  var cause : C.glm_message
  cause.text[0] = 0
  self.layout.backend.device_message(self.device, &cause)
  return status.fail(
    self.message,
    code,
    "%s: cannot load %s on rank %d: %.600s",
    self.checkpoint:file_of(view),
    view.name,
    self.layout.rank,
    &cause.text[0]
  )
end

terra Placer:vector(format : rawstring, suffix : rawstring, destination : &float) : int32
  var view : &TensorView
  status.try(self:find(format, suffix, &view))
  var args : C.glm_place_vector_args
  args.source = view.data
  args.source_dtype = view.dtype
  args.count = [int32](view:num_elements())
  args.destination = destination
  var code = self.layout.backend.place_vector(self.device, &args)
  if code ~= C.GLM_OK then
    return self:failed(code, view)
  end
  self.progress:add(view.bytes)
  return C.GLM_OK
end

local struct Part {
  matrix : &C.glm_matrix
  row_begin : int32
  num_rows : int32
  source_row : int64
  source_column : int64
}

local terra element(view : &TensorView, index : int64) : &uint8
  return view.data + index * dtypes.bytes(view.dtype)
end

terra Placer:add_scales(format : rawstring, part : &Part, args : &C.glm_place_rows_args) : int32
  args.scale_source = nil
  args.scale_dtype = C.GLM_DTYPE_F32
  args.bias_source = nil
  args.bias_dtype = C.GLM_DTYPE_F32
  var view : &TensorView
  if part.matrix.row_scale ~= nil then
    status.try(self:find(format, ".weight_scale", &view))
    args.scale_source = element(view, part.source_row)
    args.scale_dtype = view.dtype
  end
  if part.matrix.bias ~= nil then
    status.try(self:find(format, ".bias", &view))
    args.bias_source = element(view, part.source_row)
    args.bias_dtype = view.dtype
  end
  return C.GLM_OK
end

terra Placer:rows(format : rawstring, part : &Part) : int32
  var view : &TensorView
  status.try(self:find(format, ".weight", &view))
  var columns = view.shape[1]
  var args : C.glm_place_rows_args
  args.matrix = part.matrix
  args.row_begin = part.row_begin
  args.num_rows = part.num_rows
  args.source = element(view, part.source_row * columns + part.source_column)
  args.source_row_stride = columns
  status.try(self:add_scales(format, part, &args))
  var code = self.layout.backend.place_rows(self.device, &args)
  if code ~= C.GLM_OK then
    return self:failed(code, view)
  end
  self.progress:add([int64](part.num_rows) * part.matrix.columns * dtypes.bytes(view.dtype))
  return C.GLM_OK
end

terra Placer:row_slice(format : rawstring, matrix : &C.glm_matrix, row_begin : int32, num_rows : int32, part_rank : int32) : int32
  var part = Part { matrix, row_begin, num_rows, [int64](part_rank) * num_rows, 0 }
  return self:rows(format, &part)
end

terra Placer:column_slice(format : rawstring, matrix : &C.glm_matrix, part_rank : int32) : int32
  var part = Part { matrix, 0, matrix.rows, 0, [int64](part_rank) * matrix.columns }
  return self:rows(format, &part)
end

local in_layer = "model.layers.%d."

local terra place_attention(self : &Placer, weights : &LayerWeights) : int32
  var rank, head_dim = self.layout.rank, self.layout.config.head_dim
  var query_rows = self.layout:num_local_heads() * head_dim
  var key_rows = self.layout:num_local_kv_heads() * head_dim
  status.try(self:vector([in_layer .. "input_layernorm"], ".weight", weights.input_norm))
  status.try(self:vector([in_layer .. "post_attention_layernorm"], ".weight", weights.post_norm))
  if self.layout.config.use_qk_norm then
    status.try(self:vector([in_layer .. "self_attn.q_norm"], ".weight", weights.query_norm))
    status.try(self:vector([in_layer .. "self_attn.k_norm"], ".weight", weights.key_norm))
  end
  status.try(self:row_slice([in_layer .. "self_attn.q_proj"], &weights.qkv, 0, query_rows, rank))
  status.try(self:row_slice([in_layer .. "self_attn.k_proj"], &weights.qkv, query_rows, key_rows, rank))
  status.try(self:row_slice([in_layer .. "self_attn.v_proj"], &weights.qkv, query_rows + key_rows, key_rows, rank))
  return self:column_slice([in_layer .. "self_attn.o_proj"], &weights.output, rank)
end

local function place_mlp(prefix)
  return terra(self : &Placer, gate_up : &C.glm_matrix, down : &C.glm_matrix, part_rank : int32) : int32
    var width = gate_up.rows / 2
    status.try(self:row_slice([in_layer .. prefix .. "gate_proj"], gate_up, 0, width, part_rank))
    status.try(self:row_slice([in_layer .. prefix .. "up_proj"], gate_up, width, width, part_rank))
    return self:column_slice([in_layer .. prefix .. "down_proj"], down, part_rank)
  end
end

local place_dense = place_mlp("mlp.")
local place_shared = place_mlp("mlp.shared_experts.")
local place_expert = place_mlp("mlp.experts.%d.")

local terra shift(matrix : C.glm_matrix, index : int64, stride : int64, scale_stride : int64) : C.glm_matrix
  matrix.data = [&int8](matrix.data) + index * stride
  if matrix.row_scale ~= nil then
    matrix.row_scale = [&float]([&int8](matrix.row_scale) + index * scale_stride)
  end
  return matrix
end

local terra place_experts(self : &Placer, weights : &LayerWeights) : int32
  var part_rank = self.layout:part([rows.split.expert_width])
  status.try(self:row_slice([in_layer .. "mlp.gate"], &weights.router, 0, weights.router.rows, 0))
  status.try(self:vector([in_layer .. "mlp.gate"], ".e_score_correction_bias", weights.selection_bias))
  for i = 0, self.layout:num_local_experts() do
    var gate_up = shift(weights.experts_gate_up.first, i, weights.experts_gate_up.stride, weights.experts_gate_up.scale_stride)
    var down = shift(weights.experts_down.first, i, weights.experts_down.stride, weights.experts_down.scale_stride)
    self.expert = self.layout:experts_begin() + i
    status.try(place_expert(self, &gate_up, &down, part_rank))
  end
  return C.GLM_OK
end

local terra place_layer(self : &Placer, weights : &LayerWeights) : int32
  status.try(place_attention(self, weights))
  if not weights.is_moe then
    return place_dense(self, &weights.gate_up, &weights.down, self.layout.rank)
  end
  status.try(place_experts(self, weights))
  if self.layout.config.num_shared_experts == 0 then
    return C.GLM_OK
  end
  return place_shared(self, &weights.gate_up, &weights.down, self.layout.rank)
end

terra Placer:spread_scales(view : &TensorView, destination : &float) : int32
  var num_heads = self.layout:num_local_kv_heads()
  for head = 0, num_heads do
    var index = terralib.select(view:num_elements() == 1, 0, self.layout.rank * num_heads + head)
    var args : C.glm_place_vector_args
    args.source = element(view, index)
    args.source_dtype = view.dtype
    args.count = 1
    args.destination = destination + head
    var code = self.layout.backend.place_vector(self.device, &args)
    if code ~= C.GLM_OK then
      return self:failed(code, view)
    end
  end
  return C.GLM_OK
end

local terra place_head_scales(self : &Placer, model : &ModelWeights) : int32
  for layer = 0, self.layout.config.num_layers do
    var first = layer * self.layout:num_local_kv_heads()
    status.try(self:spread_scales(head_scales.find_key(self.checkpoint, layer), model.key_scale + first))
    status.try(self:spread_scales(head_scales.find_value(self.checkpoint, layer), model.value_scale + first))
  end
  return C.GLM_OK
end

local terra place_model(self : &Placer, model : &ModelWeights) : int32
  var head_rank = 0
  if model.head_is_split then
    head_rank = self.layout.rank
  end
  var head_name = "lm_head"
  if self.layout.config.tie_word_embeddings then
    head_name = "model.embed_tokens"
  end
  status.try(self:row_slice("model.embed_tokens", &model.embedding, 0, model.embedding.rows, 0))
  status.try(self:vector("model.norm", ".weight", model.final_norm))
  status.try(self:row_slice(head_name, &model.head, 0, model.head.rows, head_rank))
  for layer = 0, self.layout.config.num_layers do
    self.layer = layer
    status.try(place_layer(self, &model.layers[layer]))
  end
  if self.layout.keeps_head_scales then
    return place_head_scales(self, model)
  end
  return C.GLM_OK
end

terra place.weights(
  self : &Layout,
  model : &ModelWeights,
  checkpoint : &safetensors.Checkpoint,
  device : &C.glm_device,
  progress : &Progress,
  message : &C.glm_message
) : int32
  var placer = Placer { self, checkpoint, device, progress, message, 0, 0 }
  return place_model(&placer, model)
end

return place
