local abi = require("terra.base.abi")
local buffers = require("terra.plan.buffers")
local config = require("terra.checkpoint.config")
local status = require("terra.base.status")
local weights = require("terra.checkpoint.weights")
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

local device_call = macro(function(self, message, layer, operation, method, ...)
  local arguments = terralib.newlist { ... }
  local name = method:asvalue()
  return quote
    var code = self.backend.[name](self.device, [arguments])
    if code ~= C.GLM_OK then
      self:describe_failure(operation, layer, message)
      return code
    end
  end
end)

local outside_layers = -1

terra Rank:describe_failure(operation : rawstring, layer : int32, message : &C.glm_message)
  var cause : C.glm_message
  cause.text[0] = 0
  self.backend.device_message(self.device, &cause)
  if layer == outside_layers then
    status.fail(message, C.GLM_DEVICE_ERROR, "%s failed on rank %d: %.900s", operation, self.index, &cause.text[0])
  else
    status.fail(message, C.GLM_DEVICE_ERROR, "%s failed in layer %d on rank %d: %.900s", operation, layer, self.index, &cause.text[0])
  end
end

local run = macro(function(self, message, layer, method, arguments)
  return `device_call(self, message, layer, [method:asvalue()], method, &arguments)
end)

local call = macro(function(self, message, operation, method, ...)
  local arguments = terralib.newlist { ... }
  return `device_call(self, message, outside_layers, operation, method, [arguments])
end)

return { Rank = Rank, outside_layers = outside_layers, run = run, call = call }
