local abi = require("terra.base.abi")
local config = require("terra.checkpoint.config")
local containers = require("terra.base.containers")
local dtypes = require("terra.base.dtypes")
local quantisation = require("terra.checkpoint.quantisation")
local safetensors = require("terra.checkpoint.safetensors")
local status = require("terra.base.status")
local text = require("terra.base.text")
local weights = require("terra.model.weights")
local C = abi.C
local ModelConfig = config.ModelConfig
local Source, Weight = weights.Source, weights.Weight
local TensorView = safetensors.TensorView

local modules = {}

local struct Module {
  name : rawstring
  source : &Source
  weight : &Weight
  layer : int32
  expert : int32
  view : &TensorView
  scale : &TensorView
  bias : &TensorView
  is_quantised : bool
  is_skipped : bool
}
modules.Module = Module

local struct ModuleList {
  list : containers.Vector(Module)
  table : weights.Table
  arena : text.Arena
  config : &ModelConfig
  quantisation : &quantisation.Quantisation
  has_failed : bool
  is_skipping : bool
}
modules.ModuleList = ModuleList

terra ModuleList:init()
  self.list:init()
  self.arena:init()
  self.has_failed = false
  self.is_skipping = false
end

terra ModuleList:free()
  self.list:free()
  self.arena:free()
end

terra ModuleList:add(source : &Source, weight : &Weight, layer : int32, expert : int32)
  var name : int8[128]
  C.snprintf(&name[0], 128, source.name, self.config:stored_layer(layer), expert)
  var module = Module {
    name = self.arena:copy(text.slice(&name[0])),
    source = source,
    weight = weight,
    layer = layer,
    expert = expert,
    view = nil,
    scale = nil,
    bias = nil,
    is_quantised = weight.fp8 ~= [weights.fp8.never] and not source.is_copy and self.quantisation:covers(&name[0]),
    is_skipped = self.is_skipping,
  }
  if module.name == nil or not self.list:push(module) then
    self.has_failed = true
  end
end

terra ModuleList:add_block(block : int32, layer : int32, expert : int32)
  for i = 0, [weights.num_sources] do
    var source = &self.table.sources[i]
    var weight = &self.table.weights[source.weight]
    if weight.block == block and weight.is_present then
      self:add(source, weight, layer, expert)
    end
  end
end

terra ModuleList:add_layer(layer : int32)
  for block = 0, [weights.num_blocks] do
    if weights.has_block(self.config, block, layer) then
      for expert = 0, weights.num_copies(self.config, block) do
        self:add_block(block, layer, expert)
      end
    end
  end
end

terra ModuleList:build(model : &ModelConfig, rules : &quantisation.Quantisation, message : &C.glm_message) : int32
  self.config = model
  self.quantisation = rules
  self.table:fill(model)
  for layer = [weights.outside_layers], weights.num_listed_layers(model) do
    self.is_skipping = layer >= weights.num_loaded_layers(model)
    self:add_layer(layer)
  end
  status.fail_if(message, self.has_failed, C.GLM_OUT_OF_MEMORY, "not enough host memory to list the weights of %d layers", model.num_layers)
  return C.GLM_OK
end

terra Module:weight_dtype(plain_dtype : int32) : int32
  if self.is_quantised then
    return C.GLM_DTYPE_F8_E4M3
  elseif self.weight.dtype ~= [weights.config_dtype] then
    return self.weight.dtype
  end
  return plain_dtype
end

terra ModuleList:count(skipped : bool, num_parameters : &int64, num_bytes : &int64)
  @num_parameters, @num_bytes = 0, 0
  var plain_dtype = self.config.plain_dtype
  for i = 0, self.list.size do
    var module = self.list:at(i)
    if module.is_skipped == skipped and not module.source.is_copy then
      var num_rows = [int64](module.source.rows)
      var num_elements = num_rows * module.weight.columns
      var num_biases = terralib.select(module.weight.has_bias, num_rows, 0)
      var num_scales = terralib.select(module.is_quantised, num_rows, 0)
      @num_parameters = @num_parameters + num_elements + num_biases
      @num_bytes = @num_bytes + num_elements * dtypes.bytes(module:weight_dtype(plain_dtype))
        + num_biases * dtypes.bytes(plain_dtype) + num_scales * sizeof(float)
    end
  end
end

return modules
