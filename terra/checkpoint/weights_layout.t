local abi = require("terra.base.abi")
local config = require("terra.checkpoint.config")
local modules = require("terra.checkpoint.modules")
local status = require("terra.base.status")
local C = abi.C
local ModelConfig = config.ModelConfig
local slot = modules.slot

local layout = {}

local struct LayerWeights {
  is_moe : bool
  merges_shared : bool
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
layout.LayerWeights = LayerWeights

local struct ModelWeights {
  layers : &LayerWeights
  embedding : C.glm_matrix
  final_norm : &float
  head : C.glm_matrix
  head_is_split : bool
  experts_begin : int32
  num_local_experts : int32
  num_local_heads : int32
  num_local_kv_heads : int32
  local_vocab_size : int32
  key_scale : &float
  value_scale : &float
}
layout.ModelWeights = ModelWeights

local unset = -1

local struct WeightTypes {
  num_layers : int32
  codes : &int32
}
layout.WeightTypes = WeightTypes
layout.unset = unset

terra WeightTypes:init(num_layers : int32) : bool
  var count = [int64](num_layers + 1) * modules.num_slots
  self.num_layers = num_layers
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
  var row : int64 = layer
  return &self.codes[row * modules.num_slots + wanted]
end

terra WeightTypes:embedding() : int32
  return @self:at(self.num_layers, slot.embedding)
end

terra WeightTypes:head() : int32
  var own = @self:at(self.num_layers, slot.head)
  if own == unset then
    return self:embedding()
  end
  return own
end

terra WeightTypes:fill(list : &modules.ModuleList)
  for i = 0, list.list.size do
    var module = list.list:at(i)
    if not module.is_skipped and module.slot ~= slot.other and @self:at(module.layer, module.slot) == unset then
      @self:at(module.layer, module.slot) = module:weight_dtype(list.config.plain_dtype)
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

return layout
