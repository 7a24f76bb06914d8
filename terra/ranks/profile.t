local abi = require("terra.base.abi")
local status = require("terra.base.status")
local C = abi.C

local profile = {}

local most_operations = 64

local struct Total {
  name : rawstring
  is_of_prediction : bool
  num_calls : int64
  nanoseconds : int64
}
profile.Total = Total

local struct Profile {
  backend : &C.glm_backend
  device : &C.glm_device
  capacity : int32
  size : int32
  has_failed : bool
  begins : &&opaque
  ends : &&opaque
  names : &rawstring
  are_of_prediction : &bool
  totals : Total[most_operations]
  num_totals : int32
  num_steps : int64
}
profile.Profile = Profile

terra Profile:free()
  for i = 0, self.capacity do
    if self.begins ~= nil and self.begins[i] ~= nil then
      self.backend.event_free(self.device, self.begins[i])
    end
    if self.ends ~= nil and self.ends[i] ~= nil then
      self.backend.event_free(self.device, self.ends[i])
    end
  end
  C.free(self.begins)
  C.free(self.ends)
  C.free(self.names)
  C.free(self.are_of_prediction)
end

terra Profile:create_events() : int32
  for i = 0, self.capacity do
    status.try(self.backend.event_create(self.device, &self.begins[i]))
    status.try(self.backend.event_create(self.device, &self.ends[i]))
  end
  return C.GLM_OK
end

terra Profile:init(backend : &C.glm_backend, device : &C.glm_device, capacity : int32, message : &C.glm_message) : int32
  C.memset(self, 0, sizeof(Profile))
  self.backend = backend
  self.device = device
  self.capacity = capacity
  self.begins = [&&opaque](C.calloc(capacity, sizeof([&opaque])))
  self.ends = [&&opaque](C.calloc(capacity, sizeof([&opaque])))
  self.names = [&rawstring](C.calloc(capacity, sizeof(rawstring)))
  self.are_of_prediction = [&bool](C.calloc(capacity, sizeof(bool)))
  status.fail_if(message, self.begins == nil or self.ends == nil or self.names == nil or self.are_of_prediction == nil, C.GLM_OUT_OF_MEMORY, "not enough host memory to time %d operations", capacity)
  var code = self:create_events()
  if code ~= C.GLM_OK then
    backend.device_message(device, message)
  end
  return code
end

terra Profile:begin_step()
  self.size = 0
  self.has_failed = false
end

terra Profile:begin_operation(name : rawstring, is_of_prediction : bool)
  if self.size < self.capacity then
    self.names[self.size], self.are_of_prediction[self.size] = name, is_of_prediction
    self.has_failed = self.backend.event_record(self.device, self.begins[self.size]) ~= C.GLM_OK or self.has_failed
  else
    self.has_failed = true
  end
end

terra Profile:end_operation()
  if self.size < self.capacity then
    self.has_failed = self.backend.event_record(self.device, self.ends[self.size]) ~= C.GLM_OK or self.has_failed
    self.size = self.size + 1
  end
end

terra Profile:total_of(name : rawstring, is_of_prediction : bool) : &Total
  for i = 0, self.num_totals do
    var total = &self.totals[i]
    if total.is_of_prediction == is_of_prediction and C.strcmp(total.name, name) == 0 then
      return total
    end
  end
  if self.num_totals == most_operations then
    return nil
  end
  var total = &self.totals[self.num_totals]
  self.num_totals = self.num_totals + 1
  total.name = name
  total.is_of_prediction = is_of_prediction
  return total
end

terra Profile:end_step(message : &C.glm_message) : int32
  status.fail_if(message, self.has_failed, C.GLM_INTERNAL_ERROR, "cannot time the operations of a forward pass: %d were recorded; the maximum is %d", self.size, self.capacity)
  for i = 0, self.size do
    var milliseconds : float = 0.0f
    var code = self.backend.event_elapsed(self.device, self.begins[i], self.ends[i], &milliseconds)
    var total = self:total_of(self.names[i], self.are_of_prediction[i])
    status.fail_if(message, code ~= C.GLM_OK or total == nil, C.GLM_INTERNAL_ERROR, "cannot read the duration of %s", self.names[i])
    total.num_calls = total.num_calls + 1
    total.nanoseconds = total.nanoseconds + [int64](milliseconds * 1e6)
  end
  self.num_steps = self.num_steps + 1
  return C.GLM_OK
end

terra Profile:clear()
  self.num_totals = 0
  self.num_steps = 0
  C.memset(&self.totals[0], 0, sizeof(Total) * most_operations)
end

return profile
