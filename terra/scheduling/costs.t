local abi = require("terra.base.abi")
local check = require("terra.base.check")
local C = abi.C

local costs = { most_levels = 48 }

local least_factor, most_factor = 0.8, 1.25
local num_averaged = 16
local least_pace = 0.25
local lead_share = 4
local least_lead_ns = 5000000LL

local struct CostTable {
  size : int32
  rows : int32[costs.most_levels]
  ns : int64[costs.most_levels]
}
costs.CostTable = CostTable

terra CostTable:add(rows : int32, ns : int64)
  check.bounds(self.size, costs.most_levels)
  var last = self.size - 1
  self.rows[self.size] = rows
  self.ns[self.size] = ns
  if last >= 0 and ns < self.ns[last] then
    self.ns[self.size] = self.ns[last]
  end
  self.size = self.size + 1
end

terra CostTable:most_rows() : int32
  return terralib.select(self.size > 0, self.rows[self.size - 1], 0)
end

terra CostTable:interval(rows : int64) : int32
  var i = 1
  while i < self.size - 1 and rows > self.rows[i] do
    i = i + 1
  end
  return i
end

terra CostTable:at(rows : int64) : int64
  if rows <= 0 or self.size == 0 then
    return 0
  elseif rows <= self.rows[0] then
    return self.ns[0]
  elseif self.size == 1 then
    return self.ns[0] * rows / self.rows[0]
  end
  var i = self:interval(rows)
  var share = [double](rows - self.rows[i - 1]) / (self.rows[i] - self.rows[i - 1])
  return self.ns[i - 1] + [int64](share * (self.ns[i] - self.ns[i - 1]))
end

local struct StepCosts {
  budget_ns : int64
  factor : double
  pace : double
  rows : CostTable
  decode_context_ns : double
  prefill_context_ns : double
  draft_ns : int64
}
costs.StepCosts = StepCosts

terra costs.unbounded() : StepCosts
  var result : StepCosts
  C.memset(&result, 0, sizeof(StepCosts))
  result.factor = 1
  result.pace = 1
  return result
end

terra StepCosts:is_bounded() : bool
  return self.budget_ns > 0
end

terra StepCosts:corrected_budget_ns() : int64
  return [int64](self.budget_ns / self.factor)
end

local terra between(least : double, value : double, most : double) : double
  value = terralib.select(value < least, least, value)
  return terralib.select(value > most, most, value)
end

terra StepCosts:learn(expected_ns : int64, taken_ns : int64)
  if expected_ns <= 0 or taken_ns <= 0 then
    return
  end
  var ratio = between(least_factor, [double](taken_ns) / expected_ns, most_factor)
  self.factor = self.factor + (ratio - self.factor) / num_averaged
end

terra StepCosts:of_prefill_context(context : int64) : int64
  return [int64](self.prefill_context_ns * context)
end

terra StepCosts:of_step(num_rows : int64, decode_context : int64, prefill_context : int64) : int64
  return self.rows:at(num_rows) + [int64](self.decode_context_ns * decode_context) + self:of_prefill_context(prefill_context)
end

terra StepCosts:tokens_in(ns : int64, num_rows : int64, decode_context : int64) : float
  var step_ns = self:of_step(num_rows, decode_context, 0)
  return terralib.select(step_ns > 0, [float](ns) * num_rows / step_ns, 0.0f)
end

terra StepCosts:price_of_draft(num_rows : int64, decode_context : int64) : float
  var added = self:of_step(2 * num_rows, 2 * decode_context, 0) - self:of_step(num_rows, decode_context, 0)
  return self:tokens_in(added, num_rows, decode_context) / num_rows
end

terra StepCosts:learn_pace(expected_ns : int64, taken_ns : int64)
  if expected_ns <= 0 or taken_ns <= 0 then
    return
  end
  var ratio = between(least_pace, [double](taken_ns) / expected_ns, 1)
  self.pace = self.pace + (ratio - self.pace) / num_averaged
end

terra StepCosts:planning_delay(expected_ns : int64) : int64
  var paced = [int64](expected_ns * self.pace)
  var lead = paced / lead_share
  lead = terralib.select(lead > least_lead_ns, lead, least_lead_ns)
  return terralib.select(paced > lead, paced - lead, 0LL)
end

terra costs.context_of(position : int64, num_tokens : int64) : int64
  return num_tokens * position + num_tokens * (num_tokens + 1) / 2
end

return costs
