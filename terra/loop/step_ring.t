local abi = require("terra.base.abi")
local C = abi.C

local step_capacity = 4096

local struct StepRing {
  data : &C.engine_step
  first : int64
  size : int64
}

terra StepRing:init() : bool
  self.first = 0
  self.size = 0
  self.data = [&C.engine_step](C.calloc(step_capacity, sizeof(C.engine_step)))
  return self.data ~= nil
end

terra StepRing:free()
  C.free(self.data)
  self.data = nil
end

terra StepRing:push(step : &C.engine_step)
  if self.size == step_capacity then
    self.first = (self.first + 1) % step_capacity
    self.size = self.size - 1
  end
  self.data[(self.first + self.size) % step_capacity] = @step
  self.size = self.size + 1
end

terra StepRing:take(steps : &C.engine_step, capacity : int32) : int32
  var count = [int32](terralib.select(self.size < capacity, self.size, [int64](capacity)))
  for i = 0, count do
    steps[i] = self.data[(self.first + i) % step_capacity]
  end
  self.first = (self.first + count) % step_capacity
  self.size = self.size - count
  return count
end

return { StepRing = StepRing }
