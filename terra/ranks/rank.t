local abi = require("terra.base.abi")
local batch = require("terra.scheduling.batch")
local buffers = require("terra.plan.buffers")
local config = require("terra.checkpoint.config")
local profile = require("terra.ranks.profile")
local status = require("terra.base.status")
local weights = require("terra.model.layout")
local C = abi.C

local num_stagings = buffers.num_stagings

local struct Rank {
  index : int32
  world_size : int32
  activation_dtype : int32
  fewest_scattered_rows : int32
  acceptance_rate : float
  backend : &C.glm_backend
  device : &C.glm_device
  config : &config.ModelConfig
  weights : weights.ModelWeights
  buffers : buffers.RankBuffers
  residual_rows : C.glm_matrix
  gathered_rows : C.glm_matrix
  query_rows : C.glm_matrix
  attended_rows : C.glm_matrix
  inputs : &batch.StepInputs
  graphs : &&opaque
  num_graphs : int32
  profile : &profile.Profile
  checks_operations : bool
  is_abandoned : bool
  operation : rawstring
  layer : int32
  num_calls : int64
  cache : C.glm_kv_cache
  weight_memory : &opaque
  weight_bytes : int64
  buffer_memory : &opaque
  host_memory : &opaque
}

local step_events = { "step_begin", "forward_end", "sampling_begin", "step_end" }
for _, name in ipairs(step_events) do
  Rank.entries:insert { field = name, type = (&opaque)[num_stagings] }
end

local outside_layers = -1

terra Rank:fail_operation(cause : rawstring, message : &C.glm_message)
  if self.layer == outside_layers then
    status.fail(message, C.GLM_DEVICE_ERROR, "%s failed on rank %d: %.900s", self.operation, self.index, cause)
  else
    status.fail(message, C.GLM_DEVICE_ERROR, "%s failed in layer %d on rank %d: %.900s", self.operation, self.layer, self.index, cause)
  end
end

terra Rank:describe_failure(message : &C.glm_message)
  var cause : C.glm_message
  cause.text[0] = 0
  self.backend.device_message(self.device, &cause)
  self:fail_operation(&cause.text[0], message)
end

terra Rank:enter(operation : rawstring, layer : int32)
  self.operation = operation
  self.layer = layer
  self.num_calls = self.num_calls + 1
end

terra Rank:left(code : int32) : int32
  if self.is_abandoned then
    return C.GLM_CANCELLED
  end
  return code
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

terra Rank:begin_operation(name : rawstring, layer : int32)
  if self.profile ~= nil then
    self.profile:begin_operation(name, layer >= self.config.num_layers)
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
      self:begin_operation(label, layer)
    end
    self:enter([name], layer)
    var code = self:left(self.backend.[name](self.device, &arguments))
    if code == C.GLM_OK and is_watched then
      code = self:end_operation()
    end
    if code ~= C.GLM_OK then
      self:describe_failure(message)
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
    self:enter(operation, outside_layers)
    var code = self:left(self.backend.[name](self.device, [arguments]))
    if code ~= C.GLM_OK then
      self:describe_failure(message)
      return code
    end
  end
end)

return { Rank = Rank, step_events = step_events, outside_layers = outside_layers, run = run, run_as = run_as, call = call }
