local abi = require("terra.base.abi")
local config = require("terra.checkpoint.config")
local layout = require("terra.model.layout")
local numbers = require("terra.base.numbers")
local place = require("terra.model.place")
local status = require("terra.base.status")
local C = abi.C
local Layout = layout.Layout
local LayerWeights = layout.LayerWeights
local ModelWeights = layout.ModelWeights

local random = {}

local seeds_of_a_rank = 1048576

local struct RandomPlacer {
  layout : &Layout
  device : &C.glm_device
  progress : &place.Progress
  message : &C.glm_message
  next_seed : uint64
  ones : &float
  zeros : &float
}

local greater = numbers.greater(int32)

local terra longest_vector(c : &config.ModelConfig) : int32
  return greater(greater(c.hidden_size, c.head_dim), c.num_experts)
end

terra RandomPlacer:failed(code : int32, what : rawstring) : int32
  var cause : C.glm_message
  cause.text[0] = 0
  self.layout.backend.device_message(self.device, &cause)
  return status.fail(self.message, code, "cannot generate random %s on rank %d: %.600s", what, self.layout.rank, &cause.text[0])
end

terra RandomPlacer:fill(matrix : &C.glm_matrix, deviation : float, rank : int32) : int32
  var args : C.glm_place_random_args
  args.matrix = matrix
  args.seed = [uint64](rank) * seeds_of_a_rank + self.next_seed
  args.standard_deviation = deviation
  self.next_seed = self.next_seed + 1
  var code = self.layout.backend.place_random(self.device, &args)
  if code ~= C.GLM_OK then
    return self:failed(code, "weights")
  end
  var bytes : int64 = 0
  self.layout.backend.matrix_bytes(matrix, &bytes)
  self.progress:add(bytes)
  return C.GLM_OK
end

local terra deviation_of(columns : int32) : float
  return 1.0 / C.sqrt([double](columns))
end

terra RandomPlacer:part(matrix : &C.glm_matrix, whole_columns : int32) : int32
  return self:fill(matrix, deviation_of(whole_columns), self.layout.rank)
end

terra RandomPlacer:whole(matrix : &C.glm_matrix, deviation : float) : int32
  return self:fill(matrix, deviation, 0)
end

terra RandomPlacer:vector(destination : &float, count : int32, source : &float) : int32
  var args : C.glm_place_vector_args
  args.source = source
  args.source_dtype = C.GLM_DTYPE_F32
  args.count = count
  args.destination = destination
  var code = self.layout.backend.place_vector(self.device, &args)
  if code ~= C.GLM_OK then
    return self:failed(code, "vectors")
  end
  return C.GLM_OK
end

terra RandomPlacer:experts(
  first : C.glm_matrix,
  whole_columns : int32,
  stride : int64,
  scale_stride : int64
) : int32
  var count = self.layout:num_local_experts()
  for expert = 0, count do
    var matrix = first
    matrix.data = [&int8](first.data) + expert * stride
    if first.row_scale ~= nil then
      matrix.row_scale = [&float]([&int8](first.row_scale) + expert * scale_stride)
    end
    status.try(self:part(&matrix, whole_columns))
  end
  return C.GLM_OK
end

local terra place_attention(self : &RandomPlacer, weights : &LayerWeights) : int32
  var c = self.layout.config
  status.try(self:vector(weights.input_norm, c.hidden_size, self.ones))
  status.try(self:vector(weights.post_norm, c.hidden_size, self.ones))
  if c.use_qk_norm then
    status.try(self:vector(weights.query_norm, c.head_dim, self.ones))
    status.try(self:vector(weights.key_norm, c.head_dim, self.ones))
  end
  status.try(self:part(&weights.qkv, c.hidden_size))
  return self:part(&weights.output, c.num_heads * c.head_dim)
end

local terra place_mixture(self : &RandomPlacer, weights : &LayerWeights) : int32
  var c = self.layout.config
  status.try(self:whole(&weights.router, deviation_of(c.hidden_size)))
  status.try(self:vector(weights.selection_bias, weights.router.rows, self.zeros))
  status.try(self:experts(weights.experts_gate_up.first, c.hidden_size, weights.experts_gate_up.stride, weights.experts_gate_up.scale_stride))
  return self:experts(weights.experts_down.first, c.moe_intermediate_size, weights.experts_down.stride, weights.experts_down.scale_stride)
end

local terra place_layer(self : &RandomPlacer, weights : &LayerWeights) : int32
  status.try(place_attention(self, weights))
  if weights.is_moe then
    status.try(place_mixture(self, weights))
  end
  if weights.gate_up.data == nil then
    return C.GLM_OK
  end
  var c = self.layout.config
  var width = terralib.select(weights.is_moe, c:shared_width(), c.intermediate_size)
  status.try(self:part(&weights.gate_up, c.hidden_size))
  return self:part(&weights.down, width)
end

local terra place_model(self : &RandomPlacer, model : &ModelWeights) : int32
  var c = self.layout.config
  status.try(self:whole(&model.embedding, 1.0f))
  status.try(self:vector(model.final_norm, c.hidden_size, self.ones))
  if model.head_is_split then
    status.try(self:part(&model.head, c.hidden_size))
  else
    status.try(self:whole(&model.head, deviation_of(c.hidden_size)))
  end
  for layer = 0, c.num_layers do
    status.try(place_layer(self, &model.layers[layer]))
  end
  return C.GLM_OK
end

local terra fill_vectors(self : &RandomPlacer) : int32
  var count = longest_vector(self.layout.config)
  self.ones = [&float](C.malloc(count * sizeof(float)))
  self.zeros = [&float](C.calloc(count, sizeof(float)))
  if self.ones == nil or self.zeros == nil then
    return status.fail(self.message, C.GLM_OUT_OF_MEMORY, "not enough host memory for vectors of %d elements", count)
  end
  for i = 0, count do
    self.ones[i] = 1.0f
  end
  return C.GLM_OK
end

terra random.weights(
  self : &Layout,
  model : &ModelWeights,
  device : &C.glm_device,
  progress : &place.Progress,
  message : &C.glm_message
) : int32
  var placer = RandomPlacer { self, device, progress, message, 0, nil, nil }
  var code = fill_vectors(&placer)
  if code == C.GLM_OK then
    code = place_model(&placer, model)
  end
  if code == C.GLM_OK then
    code = self.backend.synchronise(device)
    if code ~= C.GLM_OK then
      code = placer:failed(code, "weights")
    end
  end
  C.free(placer.ones)
  C.free(placer.zeros)
  return code
end

return random
