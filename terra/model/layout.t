local abi = require("terra.base.abi")
local config = require("terra.checkpoint.config")
local modules = require("terra.model.modules")
local status = require("terra.base.status")
local weights = require("terra.model.weights")
local C = abi.C
local ModelConfig = config.ModelConfig
local LayerWeights, ModelWeights = weights.LayerWeights, weights.ModelWeights
local Matrices, Weight = weights.Matrices, weights.Weight
local slot = weights.slot

local layout = {}

layout.LayerWeights = LayerWeights
layout.ModelWeights = ModelWeights
layout.layer_matrices = weights.layer_matrices
layout.prediction_copies = weights.prediction_copies
layout.num_loaded_layers = weights.num_loaded_layers

local unset = -1

local struct WeightTypes {
  codes : &int32
}
layout.WeightTypes = WeightTypes
layout.unset = unset

terra WeightTypes:init(num_layers : int32) : bool
  var count = [int64](num_layers + 1) * weights.num_slots
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
  var row : int64 = layer - [weights.outside_layers]
  return &self.codes[row * weights.num_slots + wanted]
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
  table : &weights.Table
  types : &WeightTypes
  backend : &C.glm_backend
  world_size : int32
  rank : int32
  expert_layout : int32
  merges_shared : bool
  keeps_head_scales : bool
}
layout.Layout = Layout

terra Layout:num_parts(split : int32) : int32
  var is_by_expert = self.expert_layout == C.ENGINE_EXPERTS_EXPERT_PARALLEL
  var is_split = split == [weights.split.ranks]
    or (split == [weights.split.vocabulary] and self.config.vocab_size % self.world_size == 0)
    or (split == [weights.split.experts] and is_by_expert)
    or (split == [weights.split.expert_width] and not is_by_expert)
  return terralib.select(is_split, self.world_size, 1)
end

terra Layout:part(split : int32) : int32
  return self.rank % self:num_parts(split)
end

for _, shared in ipairs(weights.shared_sizes) do
  Layout.methods[shared.name] = terra(self : &Layout) : int32
    return [shared.value(`self.config)] / self:num_parts([shared.split])
  end
end

terra Layout:experts_begin() : int32
  return self:part([weights.split.experts]) * self:num_local_experts()
end

terra Layout:num_copies(weight : &Weight) : int32
  return terralib.select(weight.is_repeated, self:num_local_experts(), 1)
end

terra Layout:is_split(weight : &Weight) : bool
  var by_expert = terralib.select(weight.is_repeated, self:num_parts([weights.split.experts]), 1)
  return self:num_parts(weight.row_split) * self:num_parts(weight.column_split) * by_expert > 1
end

terra Layout:has(weight : &Weight, layer : int32) : bool
  return weight.is_present and weights.has_block(self.config, weight.block, layer)
end

terra Layout:can_merge_shared() : bool
  var c = self.config
  return c.num_shared_experts > 0 and c:has_moe_layers() and c:shared_width() == c.moe_intermediate_size
end

terra Layout:merges_shared_in(layer : int32) : bool
  var has_equal_gates = @self.types:at(layer, slot.gate_up) == @self.types:at(layer, slot.experts_gate_up)
  return self.merges_shared and has_equal_gates and @self.types:at(layer, slot.down) == @self.types:at(layer, slot.experts_down)
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
  status.refuse(message, value % world_size ~= 0, "%s is %d, which is not divisible by world_size %d", name, value, world_size)
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
  escape
    for _, shared in ipairs(weights.shared_sizes) do
      emit quote
        if [shared.when(`self.config)] then
          status.try(check_split([shared.stated_as], [shared.value(`self.config)], self:num_parts([shared.split]), message))
        end
      end
    end
  end
  return C.GLM_OK
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
  status.fail_if(
    self.message, code ~= C.GLM_OK, code,
    "the device does not support a matrix with %d rows, %d columns, dtype %d and role %d",
    matrix.rows,
    matrix.columns,
    matrix.dtype,
    matrix.role
  )
  return C.GLM_OK
end

local terra shape_matrix(matrix : &C.glm_matrix, dtype : int32, role : int32, rows : int32, columns : int32)
  C.memset(matrix, 0, sizeof(C.glm_matrix))
  matrix.dtype = dtype
  matrix.role = role
  matrix.rows = rows
  matrix.columns = columns
end

terra Cursor:matrices(matrix : &C.glm_matrix, count : int32, has_bias : bool, stride : &int64, scale_stride : &int64) : int32
  status.try(self:measure(matrix, stride))
  matrix.data = self:take(@stride * count)
  @scale_stride = 0
  if matrix.dtype == C.GLM_DTYPE_F8_E4M3 then
    @scale_stride = [int64](matrix.rows) * sizeof(float)
    matrix.row_scale = [&float](self:take(@scale_stride * count))
  end
  if has_bias then
    matrix.bias = self:vector(matrix.rows)
  end
  return C.GLM_OK
end

terra Layout:shape_matrix(weight : &Weight, layer : int32) : C.glm_matrix
  var matrix : C.glm_matrix
  C.memset(&matrix, 0, sizeof(C.glm_matrix))
  matrix.dtype = @self.types:at(layer, weight.slot)
  matrix.role = weight.role
  matrix.rows = weight.rows / self:num_parts(weight.row_split)
  matrix.columns = weight.columns / self:num_parts(weight.column_split)
  return matrix
end

terra Layout:assign_weight(at : &Cursor, model : &ModelWeights, weight : &Weight, layer : int32) : int32
  if weight.is_vector then
    @model:vector(weight, layer) = at:vector(weight.rows)
    return C.GLM_OK
  end
  var many : Matrices
  many.first = self:shape_matrix(weight, layer)
  status.try(at:matrices(&many.first, self:num_copies(weight), weight.has_bias, &many.stride, &many.scale_stride))
  var field = model:field(weight, layer)
  if weight.is_repeated then
    @[&Matrices](field) = many
  else
    @[&C.glm_matrix](field) = many.first
  end
  return C.GLM_OK
end

terra Layout:assign_layer(at : &Cursor, model : &ModelWeights, layer : int32) : int32
  for i = 0, [weights.num_weights] do
    var weight = &self.table.weights[i]
    if self:has(weight, layer) then
      status.try(self:assign_weight(at, model, weight, layer))
    end
  end
  return C.GLM_OK
end

terra Layout:assign_model(at : &Cursor, model : &ModelWeights) : int32
  var c, num_layers = self.config, weights.num_loaded_layers(self.config)
  model.head_is_split = self:num_parts([weights.split.vocabulary]) > 1
  model.experts_begin = self:experts_begin()
  escape
    for _, shared in ipairs(weights.shared_sizes) do
      emit quote model.[shared.name] = self:[shared.name]() end
    end
  end
  status.try(self:assign_layer(at, model, [weights.outside_layers]))
  if self.keeps_head_scales then
    escape
      for _, scale in ipairs(weights.head_scales) do
        emit quote model.[scale.field] = at:vector(num_layers * model.num_local_kv_heads) end
      end
    end
  end
  for layer = 0, num_layers do
    model.layers[layer].is_moe = layer >= c.first_k_dense_replace
    model.layers[layer].merges_shared = model.layers[layer].is_moe and self:merges_shared_in(layer)
    status.try(self:assign_layer(at, model, layer))
  end
  return C.GLM_OK
end

terra layout.assign(self : &Layout, base : &int8, model : &ModelWeights, bytes : &int64, message : &C.glm_message) : int32
  var at = Cursor { base = base, offset = 0, backend = self.backend, message = message }
  C.memset(model, 0, sizeof(ModelWeights))
  var num_layers = weights.num_loaded_layers(self.config)
  model.layers = [&LayerWeights](C.calloc(num_layers, sizeof(LayerWeights)))
  status.fail_if(message, model.layers == nil, C.GLM_OUT_OF_MEMORY, "not enough host memory for the weight table of %d layers", num_layers)
  var code = self:assign_model(&at, model)
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
