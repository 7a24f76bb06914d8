local abi = require("terra.abi")
local C = abi.C

local struct LayerWeights {
  is_moe : bool
  input_norm : &float
  post_norm : &float
  query_norm : &float
  key_norm : &float
  qkv : C.glm_matrix
  output : C.glm_matrix
  gate_up : C.glm_matrix
  down : C.glm_matrix
  router : C.glm_matrix
  selection_bias : &float
  experts_gate_up : C.glm_matrix
  experts_down : C.glm_matrix
  experts_gate_up_stride : int64
  experts_gate_up_scale_stride : int64
  experts_down_stride : int64
  experts_down_scale_stride : int64
}

local struct ModelWeights {
  layers : &LayerWeights
  embedding : C.glm_matrix
  final_norm : &float
  head : C.glm_matrix
  head_is_split : bool
  has_shared_expert : bool
  experts_begin : int32
  num_local_experts : int32
  num_local_heads : int32
  num_local_kv_heads : int32
  local_vocab_size : int32
}

return { LayerWeights = LayerWeights, ModelWeights = ModelWeights }
