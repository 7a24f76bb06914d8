local abi = require("terra.base.abi")
local batch = require("terra.scheduling.batch")
local check = require("terra.base.check")
local costs = require("terra.scheduling.costs")
local numbers = require("terra.base.numbers")
local ranks = require("terra.ranks.ranks")
local status = require("terra.base.status")
local trial = require("terra.ranks.trial")
local C = abi.C

local RankGroup = ranks.RankGroup
local StepCosts = costs.StepCosts
local Trial = trial.Trial

local num_repeats = 2
local decode_factor = 2
local least_prompt = 16
local fine_prompt = 256
local most_decode_rows = 16
local most_context = 4096

local struct Level {
  num_beside : int32
  num_tokens : int32
  ns : int64
}

local struct Measuring {
  group : &RankGroup
  costs : &StepCosts
  trial : Trial
  most_positions : int32
  levels : Level[costs.most_levels]
  num_levels : int32
}

local smaller, greater = numbers.smaller(int32), numbers.greater(int64)

terra Measuring:time(num_rows : int32, row_position : int32, num_tokens : int32, position : int32, ns : &int64, message : &C.glm_message) : int32
  for i = 0, num_repeats do
    self.trial:begin()
    self.trial:add_decode_rows(num_rows, row_position)
    if num_tokens > 0 then
      self.trial:add_prompt(position, num_tokens)
    end
    self.trial:finish()
    status.try(self.group:step(&self.trial.plan, message))
    var taken = self.group:last_device_ns()
    if i == 0 or taken < @ns then
      @ns = taken
    end
  end
  return C.GLM_OK
end

terra Measuring:most_rows() : int32
  return self.trial.plan.shape:most_decode_rows()
end

terra Measuring:measure_decode(message : &C.glm_message) : int32
  var most = self:most_rows()
  var rows = 1
  while true do
    var ns : int64
    status.try(self:time(rows, 0, 0, 0, &ns, message))
    self.costs.rows:add(rows, ns)
    if rows == most then
      return C.GLM_OK
    end
    rows = smaller(decode_factor * rows, most)
  end
end

terra Measuring:measure_drafts(message : &C.glm_message) : int32
  var drafting_ns : int64, plain_ns : int64
  var rows = smaller(most_decode_rows, self:most_rows())
  self.trial.draws_drafts = true
  status.try(self:time(rows, 0, 0, 0, &drafting_ns, message))
  self.trial.draws_drafts = false
  status.try(self:time(rows, 0, 0, 0, &plain_ns, message))
  self.costs.draft_ns = greater(drafting_ns - plain_ns, 0)
  return C.GLM_OK
end

terra Measuring:rows_beside(num_tokens : int32) : int32
  var shape = &self.trial.plan.shape
  var rows = smaller(most_decode_rows, self:most_rows())
  rows = smaller(rows, shape.max_decode_rows - 1)
  return smaller(rows, shape.max_step_tokens - num_tokens)
end

local terra next_prompt(num_tokens : int32) : int32
  return terralib.select(num_tokens < fine_prompt, 4 * num_tokens, 2 * num_tokens)
end

terra Measuring:measure_prompts(message : &C.glm_message) : int32
  var most = smaller(self.trial.plan.shape.max_step_tokens, self.most_positions)
  var num_tokens = smaller(least_prompt, most)
  self.num_levels = 0
  while true do
    check.bounds(self.num_levels, costs.most_levels)
    var level = &self.levels[self.num_levels]
    level.num_beside, level.num_tokens, level.ns = self:rows_beside(num_tokens), num_tokens, 0
    if num_tokens == most or level.num_beside + num_tokens > self.costs.rows:most_rows() then
      status.try(self:time(level.num_beside, 0, num_tokens, 0, &level.ns, message))
      self.num_levels = self.num_levels + 1
    end
    if num_tokens == most or level.ns >= self.costs.budget_ns then
      return C.GLM_OK
    end
    num_tokens = smaller(next_prompt(num_tokens), most)
  end
end

terra Measuring:add_prompts()
  for i = 0, self.num_levels do
    var level = &self.levels[i]
    var rows = level.num_beside + level.num_tokens
    if rows > self.costs.rows:most_rows() then
      self.costs.rows:add(rows, level.ns - self.costs:of_prefill_context(costs.context_of(0, level.num_tokens)))
    end
  end
end

local terra per_token(long_ns : int64, short_ns : int64, context : int64) : double
  if context <= 0 or long_ns <= short_ns then
    return 0
  end
  return [double](long_ns - short_ns) / context
end

terra Measuring:measure_decode_context(message : &C.glm_message) : int32
  var long_ns : int64, short_ns : int64
  var rows = smaller(most_decode_rows, self:most_rows())
  var position = smaller(most_context, self.most_positions) - 1
  status.try(self:time(rows, position, 0, 0, &long_ns, message))
  status.try(self:time(rows, 0, 0, 0, &short_ns, message))
  self.costs.decode_context_ns = per_token(long_ns, short_ns, [int64](rows) * position)
  return C.GLM_OK
end

terra Measuring:measure_prefill_context(message : &C.glm_message) : int32
  var long_ns : int64
  var level = &self.levels[self.num_levels - 1]
  var position = smaller(most_context, self.most_positions - level.num_tokens)
  status.try(self:time(level.num_beside, 0, level.num_tokens, position, &long_ns, message))
  self.costs.prefill_context_ns = per_token(long_ns, level.ns, [int64](level.num_tokens) * position)
  return C.GLM_OK
end

terra Measuring:measure(message : &C.glm_message) : int32
  status.try(self:measure_decode(message))
  status.try(self:measure_decode_context(message))
  if self.trial.plan.shape:drafts_with_layer() then
    status.try(self:measure_drafts(message))
  end
  if not self.costs:is_bounded() then
    return C.GLM_OK
  end
  status.try(self:measure_prompts(message))
  status.try(self:measure_prefill_context(message))
  self:add_prompts()
  return C.GLM_OK
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
