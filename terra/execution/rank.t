local abi = require("terra.base.abi")
local batch = require("terra.scheduling.batch")
local buffers = require("terra.plan.buffers")
local config = require("terra.checkpoint.config")
local profile = require("terra.execution.profile")
local status = require("terra.base.status")
local weights = require("terra.checkpoint.weights")
local C = abi.C

local num_stagings = buffers.num_stagings

local struct Rank {
  index : int32
  world_size : int32
  activation_dtype : int32
  backend : &C.glm_backend
  device : &C.glm_device
  config : &config.ModelConfig
  weights : weights.ModelWeights
  buffers : buffers.RankBuffers
  inputs : &batch.StepInputs
  step_begin : (&opaque)[num_stagings]
  step_end : (&opaque)[num_stagings]
  graphs : &&opaque
  num_graphs : int32
  profile : &profile.Profile
  checks_operations : bool
  shares_samples : bool
  cache : C.glm_kv_cache
  weight_memory : &opaque
  weight_bytes : int64
  buffer_memory : &opaque
  host_memory : &opaque
}

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

terra Rank:stop_profile()
  if self.profile ~= nil then
    self.profile:free()
    C.free(self.profile)
    self.profile = nil
  end
end

terra Rank:watches_operations() : bool
  return self.profile ~= nil or self.checks_operations
end

terra Rank:begin_operation(name : rawstring)
  if self.profile ~= nil then
    self.profile:begin_operation(name)
  end
end

terra Rank:end_operation() : int32
  if self.profile ~= nil then
    self.profile:end_operation()
  end
  if self.checks_operations then
    return self.backend.synchronise(self.device)
  end
  return C.GLM_OK
end

local run_as = macro(function(self, message, layer, label, method, arguments)
  local name = method:asvalue()
  return quote
    var is_watched = self:watches_operations()
    if is_watched then
      self:begin_operation(label)
    end
    var code = self.backend.[name](self.device, &arguments)
    if code == C.GLM_OK and is_watched then
      code = self:end_operation()
    end
    if code ~= C.GLM_OK then
      self:describe_failure([name], layer, message)
      return code
    end
  end
end)

local run = macro(function(self, message, layer, method, arguments)
  return `run_as(self, message, layer, [method:asvalue()], method, arguments)
end)

local call = macro(function(self, message, operation, method, ...)
  local arguments = terralib.newlist { ... }
  local name = method:asvalue()
  return quote
    var code = self.backend.[name](self.device, [arguments])
    if code ~= C.GLM_OK then
      self:describe_failure(operation, outside_layers, message)
      return code
    end
  end
end)

return { Rank = Rank, outside_layers = outside_layers, run = run, run_as = run_as, call = call }
