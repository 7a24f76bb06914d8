local abi = require("terra.base.abi")
local endings = require("terra.scheduling.endings")
local scheduler = require("terra.scheduling.scheduler")
local sequence = require("terra.scheduling.sequence")
local C = abi.C

local Scheduler = endings.Scheduler
local Sequence = sequence.Sequence

local least_share = 4
local least_pieces = 2

local terra smaller(a : int32, b : int32) : int32
  return terralib.select(a < b, a, b)
end

local terra greater(a : int64, b : int64) : int64
  return terralib.select(a > b, a, b)
end

local terra context_of(position : int64, num_tokens : int64) : int64
  return num_tokens * position + num_tokens * (num_tokens + 1) / 2
end

terra Scheduler:has_budget() : bool
  return self.options.costs:is_bounded()
end

terra Scheduler:wants_decode_row(item : &Sequence) : bool
  return item:is_decoding() and not item:awaits_its_end() and not item:sits_out()
end

terra Scheduler:open_budget()
  if not self:has_budget() then
    return
  end
  var costs, rows = &self.options.costs, 0
  var context : int64 = 0
  for i = 0, self.running.size do
    var item = self.running.data[i]
    if self:wants_decode_row(item) then
      rows = rows + 1
      context = context + item:length()
    end
  end
  self.pieces = scheduler.Pieces { num_decode_rows = rows, decode_ns = costs:of_decode(rows, context), limit_ns = 0, num_tokens = 0, context = 0 }
  var left = costs.budget_ns - self.pieces.decode_ns
  self.pieces.limit_ns = greater(left, greater(costs.budget_ns / least_share, least_pieces * costs:least_prefill()))
end

terra Scheduler:expected_ns() : int64
  return self.pieces.decode_ns + self.options.costs:of_prefill(self.pieces.num_tokens, self.pieces.context)
end

terra Scheduler:fits_budget(position : int32, num_tokens : int32) : bool
  var p = &self.pieces
  return self.options.costs:of_prefill(p.num_tokens + num_tokens, p.context + context_of(position, num_tokens)) <= p.limit_ns
end

terra Scheduler:piece_of(position : int32, wanted : int32) : int32
  if not self:has_budget() or self:fits_budget(position, wanted) then
    return wanted
  end
  var fitting, too_many = 0, wanted
  while too_many - fitting > 1 do
    var middle = (fitting + too_many) / 2
    if self:fits_budget(position, middle) then
      fitting = middle
    else
      too_many = middle
    end
  end
  fitting = fitting - fitting % self.options.page_size
  if fitting == 0 and self.pieces.num_tokens == 0 then
    return smaller(wanted, self.options.page_size)
  end
  return fitting
end

terra Scheduler:take_piece(position : int32, num_tokens : int32)
  self.pieces.num_tokens = self.pieces.num_tokens + num_tokens
  self.pieces.context = self.pieces.context + context_of(position, num_tokens)
end

terra Scheduler:most_step_tokens() : int32
  var most = self.step.shape.max_step_tokens
  if not self:has_budget() then
    return most
  end
  return smaller(most, self.pieces.num_decode_rows + self:piece_of(0, most))
end

terra Scheduler:chunk_of(item : &Sequence) : int32
  if item:sits_out() then
    return 0
  elseif item:is_decoding() then
    return 1
  end
  var remaining = item.prompt_length - item.num_computed
  if self.options.prefill_chunk > 0 then
    return smaller(remaining, self.options.prefill_chunk)
  end
  return remaining
end

terra Scheduler:gathers_prompts() : bool
  if not self:has_budget() or self.step.num_decode_tokens == 0 then
    return false
  end
  var num_tokens : int64, context : int64, arrived_ns = 0, 0, self.now_ns
  for i = 0, self.running.size do
    var item = self.running.data[i]
    if not item:is_decoding() then
      var count = self:chunk_of(item)
      num_tokens = num_tokens + count
      context = context + context_of(item.num_computed, count)
      arrived_ns = terralib.select(item.arrived_ns < arrived_ns, item.arrived_ns, arrived_ns)
    end
  end
  var costs = &self.options.costs
  return costs:of_prefill(num_tokens, context) < least_pieces * costs:least_prefill() and self.now_ns - arrived_ns < costs:longest_gathering()
end

return { Scheduler = Scheduler }
