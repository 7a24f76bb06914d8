local abi = require("terra.base.abi")
local C = abi.C

return function(Loop)
  terra Loop:describe_step(launch_ns : int64)
    var step = &self.planned_step
    step.num_tokens = self.step.num_tokens
    step.num_decode_tokens = self.step.num_decode_tokens
    step.num_sample_rows = self.step.num_sample_rows
    step.owned_pages = self.scheduler.pool.num_owned
    step.plan_ns = self.last_plan_ns
    step.launch_ns = launch_ns
    step.mask_wait_ns = 0
    step.expected_ns = self.scheduler:expected_ns()
  end

  terra Loop:record_step(now : int64)
    var step = self.launched_step
    step.landed_ns = now
    self.landed_ns = now
    step.device_ns = self.ranks:last_device_ns()
    step.is_graph = self.ranks:last_is_graph()
    if not self.is_profiled then
      self.scheduler.options.costs:learn_pace(step.expected_ns, step.device_ns)
    end
    if step.num_tokens == step.num_decode_tokens then
      self.decode_ns = step.device_ns
    elseif not self.is_profiled then
      self.scheduler.options.costs:learn(step.expected_ns, step.device_ns)
    end
    self:lock()
    self.steps:push(&step)
    self:unlock()
  end

  terra Loop:take_steps(steps : &C.engine_step, capacity : int32, count : &int32)
    self:lock()
    @count = self.steps:take(steps, capacity)
    self:unlock()
  end
end
