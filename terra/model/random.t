local abi = require("terra.base.abi")
local layout = require("terra.model.layout")
local numbers = require("terra.base.numbers")
local place = require("terra.model.place")
local status = require("terra.base.status")
local weights = require("terra.model.weights")
local C = abi.C
local Layout = layout.Layout
local ModelWeights = layout.ModelWeights
local Weight = weights.Weight

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

local terra longest_vector(table : &weights.Table) : int32
  var longest = 0
  for i = 0, [weights.num_weights] do
    if table.weights[i].is_vector then
      longest = greater(longest, table.weights[i].rows)
    end
  end
  return longest
end

terra RandomPlacer:failed(code : int32, what : rawstring) : int32
  var cause : C.glm_message
  cause.text[0] = 0
  self.layout.backend.device_message(self.device, &cause)
  return status.fail(self.message, code, "cannot generate random %s on rank %d: %.600s", what, self.layout.rank, &cause.text[0])
end

terra RandomPlacer:fill(matrix : &C.glm_matrix, deviation : float, rank : int32) : int32
  var args = C.glm_place_random_args {
    matrix = matrix,
    seed = [uint64](rank) * seeds_of_a_rank + self.next_seed,
    standard_deviation = deviation,
  }
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

terra RandomPlacer:vector(destination : &float, count : int32, source : &float) : int32
  var args = C.glm_place_vector_args {
    source = source,
    source_dtype = C.GLM_DTYPE_F32,
    count = count,
    destination = destination,
  }
  var code = self.layout.backend.place_vector(self.device, &args)
  if code ~= C.GLM_OK then
    return self:failed(code, "vectors")
  end
  return C.GLM_OK
end

terra RandomPlacer:weight(model : &ModelWeights, weight : &Weight, layer : int32) : int32
  if weight.is_vector then
    return self:vector(@model:vector(weight, layer), weight.rows, terralib.select(weight.draw == 0, self.zeros, self.ones))
  end
  var rank = terralib.select(self.layout:is_split(weight), self.layout.rank, 0)
  for copy = 0, self.layout:num_copies(weight) do
    var matrix = model:matrix(weight, layer, copy)
    status.try(self:fill(&matrix, weight.draw, rank))
  end
  return C.GLM_OK
end

terra RandomPlacer:model(model : &ModelWeights) : int32
  for layer = [weights.outside_layers], weights.num_loaded_layers(self.layout.config) do
    for i = 0, [weights.num_weights] do
      var weight = &self.layout.table.weights[i]
      if self.layout:has(weight, layer) then
        status.try(self:weight(model, weight, layer))
      end
    end
  end
  return C.GLM_OK
end

local terra fill_vectors(self : &RandomPlacer) : int32
  var count = longest_vector(self.layout.table)
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
    code = placer:model(model)
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
