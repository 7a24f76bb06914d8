local abi = require("terra.abi")
local batch = require("terra.batch")
local config = require("terra.config")
local weights = require("terra.weights")
local C = abi.C

local struct RankBuffers {
  inputs : batch.StepInputs
  outputs : batch.StepOutputs
  host_inputs : batch.StepInputs
  host_outputs : batch.StepOutputs
  residual : &opaque
  delta : &opaque
  plain : &opaque
  codes : &uint8
  row_scale : &float
  qkv : &opaque
  query : &opaque
  attended : &opaque
  gate_up : &opaque
  activated : &opaque
  activated_codes : &uint8
  activated_scale : &float
  shared : &opaque
  expert_ids : &int32
  expert_weights : &float
  local_logits : &float
  logits : &float
  counts : &uint32
  count_tokens : &int32
  cosine : &float
  sine : &float
  workspace : &opaque
}

local struct Rank {
  index : int32
  world_size : int32
  activation_dtype : int32
  backend : &C.glm_backend
  device : &C.glm_device
  config : &config.ModelConfig
  weights : weights.ModelWeights
  buffers : RankBuffers
  cache : C.glm_kv_cache
  weight_memory : &opaque
  buffer_memory : &opaque
  host_memory : &opaque
}

return { Rank = Rank, RankBuffers = RankBuffers }
