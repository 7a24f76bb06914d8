local abi = require("terra.abi")
local buffers = require("terra.buffers")
local config = require("terra.config")
local weights = require("terra.weights")
local C = abi.C

local struct Rank {
  index : int32
  world_size : int32
  activation_dtype : int32
  backend : &C.glm_backend
  device : &C.glm_device
  config : &config.ModelConfig
  weights : weights.ModelWeights
  buffers : buffers.RankBuffers
  cache : C.glm_kv_cache
  weight_memory : &opaque
  buffer_memory : &opaque
  host_memory : &opaque
}

return { Rank = Rank, RankBuffers = buffers.RankBuffers }
