local abi = require("terra.base.abi")
local device = require("terra.ranks.device")
local model = require("terra.model.model")
local plan = require("terra.plan.plan")
local options = require("terra.plan.options")
local status = require("terra.base.status")
local C = abi.C

local world_size = {}

local most_automatic = 8

local struct Planning {
  made : &plan.Plan
  source : &model.Model
  library : &device.Library
  given : &C.engine_options
  ranks_per_device : int32
}

terra Planning:describe(world_size : int32, facts : &plan.DeviceFacts, message : &C.glm_message) : int32
  facts.backend = self.library.backend
  facts.kind = self.library:kind_name()
  facts.shares_memory = self.library:shares_memory()
  facts.is_native_gpu = self.library:is_kind([device.gpu_kind])
  if self.given.device_memory_bytes > 0 then
    return self.library:describe_kind(world_size, self.ranks_per_device, self.given.device_memory_bytes, &facts.info, message)
  end
  return self.library:describe(world_size, self.ranks_per_device, &facts.info, message)
end

terra Planning:make(world_size : int32, facts : &plan.DeviceFacts, made : &plan.Plan, message : &C.glm_message) : int32
  var wanted = @self.given
  wanted.world_size = world_size
  return made:make(self.source, facts, &wanted, message)
end

terra Planning:plan_for(world_size : int32, message : &C.glm_message) : int32
  var facts : plan.DeviceFacts
  status.try(self:describe(world_size, &facts, message))
  return self:make(world_size, &facts, self.made, message)
end

terra Planning:most_devices(most : &int32, message : &C.glm_message) : int32
  @most = most_automatic
  if self.given.device_memory_bytes > 0 then
    return C.GLM_OK
  end
  var count : int32
  status.try(self.library.backend.device_count(&count, message))
  if count < most_automatic then
    @most = count
  end
  return C.GLM_OK
end

terra Planning:grow(begin : int32, message : &C.glm_message) : int32
  var most : int32
  status.try(self:most_devices(&most, message))
  var world_size = 2 * begin
  while not self.made.fits and world_size <= most do
    var facts : plan.DeviceFacts
    status.try(self:describe(world_size, &facts, message))
    var larger : plan.Plan
    var refusal : C.glm_message
    if self:make(world_size, &facts, &larger, &refusal) ~= C.GLM_OK then
      self.made:refuse_also(&refusal.text[0])
      return C.GLM_OK
    end
    @self.made = larger
    world_size = 2 * world_size
  end
  return C.GLM_OK
end

terra Planning:fewest_that_run(world_size : &int32, message : &C.glm_message) : int32
  @world_size = 1
  var first, most = self:plan_for(1, message), 1
  if first ~= C.GLM_NOT_SUPPORTED then
    return first
  end
  var code = self:most_devices(&most, nil)
  while code == C.GLM_OK and 2 * @world_size <= most do
    @world_size = 2 * @world_size
    code = self:plan_for(@world_size, nil)
    if code == C.GLM_OK then
      return C.GLM_OK
    elseif code == C.GLM_NOT_SUPPORTED then
      code = C.GLM_OK
    end
  end
  return first
end

terra world_size.plan(
  made : &plan.Plan,
  source : &model.Model,
  library : &device.Library,
  given : &C.engine_options,
  message : &C.glm_message
) : int32
  var first, checked = @given, @given
  if given.world_size == 0 then
    first.world_size = 1
  end
  status.try(options.resolve(&first, &source.config, &checked, message))
  var planning = Planning { made, source, library, given, checked.ranks_per_device }
  if given.world_size > 0 or library:shares_memory() then
    return planning:plan_for(first.world_size, message)
  end
  var fewest : int32
  status.try(planning:fewest_that_run(&fewest, message))
  return planning:grow(fewest, message)
end

return world_size
