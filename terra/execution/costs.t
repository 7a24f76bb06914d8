local abi = require("terra.base.abi")
local batch = require("terra.scheduling.batch")
local costs = require("terra.scheduling.costs")
local measures = require("terra.execution.measures")
local status = require("terra.base.status")
local trial = require("terra.execution.trial")
local C = abi.C

local RankGroup = measures.RankGroup
local StepCosts = costs.StepCosts
local Trial = trial.Trial

local num_repeats = 2
local least_levels = 2
local decode_factor = 4
local least_prompt = 16
local fine_prompt = 256
local context_prompt = 64
local most_decode_rows = 16
local most_context = 4096

local struct Measuring {
  group : &RankGroup
  costs : &StepCosts
  trial : Trial
  most_positions : int32
}

local terra smaller(a : int32, b : int32) : int32
  return terralib.select(a < b, a, b)
end

terra Measuring:time(num_rows : int32, row_position : int32, num_tokens : int32, position : int32, ns : &int64, message : &C.glm_message) : int32
  for i = 0, num_repeats do
    self.trial:begin()
    self.trial:add_decode_rows(num_rows, row_position)
    if num_tokens > 0 then
      self.trial:add_prompt(position, num_tokens)
    end
    status.try(self.group:step(&self.trial.plan, message))
    var taken = self.group:last_device_ns()
    if i == 0 or taken < @ns then
      @ns = taken
    end
  end
  return C.GLM_OK
end

terra Measuring:most_rows() : int32
  var shape = &self.trial.plan.shape
  return smaller(smaller(shape.max_sequences, shape.max_logit_rows), shape.max_step_tokens)
end

terra Measuring:measure_decode(message : &C.glm_message) : int32
  var most = self:most_rows()
  var rows = 1
  while true do
    var ns : int64
    status.try(self:time(rows, 0, 0, 0, &ns, message))
    self.costs.decode:add(rows, ns)
    if rows == most then
      return C.GLM_OK
    end
    rows = smaller(decode_factor * rows, most)
  end
end

terra Measuring:rows_beside(num_tokens : int32) : int32
  var shape = &self.trial.plan.shape
  var rows = smaller(most_decode_rows, self:most_rows())
  rows = smaller(rows, shape.max_sequences - 1)
  return smaller(rows, shape.max_step_tokens - num_tokens)
end

local terra next_prompt(num_tokens : int32) : int32
  return terralib.select(num_tokens < fine_prompt, 4 * num_tokens, 2 * num_tokens)
end

terra Measuring:measure_prefill(message : &C.glm_message) : int32
  var most = smaller(self.trial.plan.shape.max_step_tokens, self.most_positions)
  var num_tokens = smaller(least_prompt, most)
  while true do
    var rows, ns : int64 = self:rows_beside(num_tokens), 0
    status.try(self:time(rows, 0, num_tokens, 0, &ns, message))
    var own = ns - self.costs.decode:at(rows)
    self.costs.prefill:add(num_tokens, terralib.select(own > 0, own, [int64](0)))
    var is_enough = ns >= self.costs.budget_ns and self.costs.prefill.size >= least_levels
    if num_tokens == most or is_enough then
      return C.GLM_OK
    end
    num_tokens = smaller(next_prompt(num_tokens), most)
  end
end

local terra per_token(long_ns : int64, short_ns : int64, context : int64) : double
  if context <= 0 or long_ns <= short_ns then
    return 0
  end
  return [double](long_ns - short_ns) / context
end

terra Measuring:measure_context(message : &C.glm_message) : int32
  var long_ns : int64, short_ns : int64
  var rows = smaller(most_decode_rows, self:most_rows())
  var position = smaller(most_context, self.most_positions) - 1
  status.try(self:time(rows, position, 0, 0, &long_ns, message))
  status.try(self:time(rows, 0, 0, 0, &short_ns, message))
  self.costs.decode_context_ns = per_token(long_ns, short_ns, [int64](rows) * position)
  var num_tokens = smaller(smaller(context_prompt, self.trial.plan.shape.max_step_tokens), self.most_positions)
  position = position + 1 - num_tokens
  status.try(self:time(0, 0, num_tokens, position, &long_ns, message))
  status.try(self:time(0, 0, num_tokens, 0, &short_ns, message))
  self.costs.prefill_context_ns = per_token(long_ns, short_ns, [int64](num_tokens) * position)
  return C.GLM_OK
end

terra Measuring:measure(message : &C.glm_message) : int32
  status.try(self:measure_decode(message))
  status.try(self:measure_prefill(message))
  return self:measure_context(message)
end

local terra measure(group : &RankGroup, shape : &batch.StepShape, options : &C.engine_options, num_pages : int32, result : &StepCosts, message : &C.glm_message) : int32
  var self : Measuring
  self.group = group
  self.costs = result
  self.most_positions = options.max_seq
  status.try(self.trial:init(shape, options.page_size, num_pages, message))
  var device_ns, num_graph_steps = group.device_ns, group.num_graph_steps
  var code = self:measure(message)
  group.device_ns = device_ns
  group.num_graph_steps = num_graph_steps
  self.trial:free()
  return code
end

return { measure = measure }
