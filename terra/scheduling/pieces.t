local costs = require("terra.scheduling.costs")
local lists = require("terra.scheduling.lists")
local numbers = require("terra.base.numbers")
local sequence = require("terra.scheduling.sequence")

local Sequence = sequence.Sequence

local least_share = 4

local smaller = numbers.smaller(int32)
local greater = numbers.greater(int64)

return function(Scheduler)
  terra Scheduler:has_budget() : bool
    return self.options.costs:is_bounded()
  end

  terra Scheduler:wants_decode_row(item : &Sequence) : bool
    return item:is_decoding() and not item:awaits_its_end() and not item:awaits_its_drafts() and not self:lets_drafts_wait(item) and not item:sits_out()
  end

  terra Scheduler:open_budget()
    if not self:has_budget() then
      return
    end
    var prices, rows = &self.options.costs, 0
    var context : int64 = 0
    for i = 0, self.running.size do
      var item = self.running.data[i]
      if self:wants_decode_row(item) then
        rows = rows + 1 + item.num_drafts
        context = context + (1 + item.num_drafts) * item:length()
      end
    end
    var decode_ns, budget_ns = prices:of_step(rows, context, 0), prices:corrected_budget_ns()
    var limit_ns = greater(budget_ns, decode_ns + budget_ns / least_share)
    self.pieces = lists.Pieces { num_decode_rows = rows, decode_context = context, limit_ns = limit_ns, num_tokens = 0, context = 0 }
  end

  terra Scheduler:cost_with(num_tokens : int64, context : int64) : int64
    var p = &self.pieces
    return self.options.costs:of_step(p.num_decode_rows + p.num_tokens + num_tokens, p.decode_context, p.context + context)
  end

  terra Scheduler:expected_ns() : int64
    return terralib.select(self:has_budget(), self:cost_with(0, 0), 0LL)
  end

  terra Scheduler:fits_budget(position : int32, num_tokens : int32) : bool
    return self:cost_with(num_tokens, costs.context_of(position, num_tokens)) <= self.pieces.limit_ns
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
    fitting = fitting - fitting % self.options.engine.page_size
    if fitting == 0 and self.pieces.num_tokens == 0 then
      return smaller(wanted, self.options.engine.page_size)
    end
    return fitting
  end

  terra Scheduler:take_piece(position : int32, num_tokens : int32)
    self.pieces.num_tokens = self.pieces.num_tokens + num_tokens
    self.pieces.context = self.pieces.context + costs.context_of(position, num_tokens)
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
      return 1 + item.num_drafts
    end
    var remaining = item.prompt_length - item.num_computed
    if item:wants_prompt_logprobs() then
      remaining = smaller(remaining, self.step.shape.max_logit_rows)
    end
    if self.options.engine.prefill_chunk > 0 then
      return smaller(remaining, self.options.engine.prefill_chunk)
    end
    return remaining
  end

  terra Scheduler:most_prompt_rows(index : int64) : int32
    var free = self.step.shape.max_logit_rows - self.step.num_logit_rows
    if not self.running.data[index]:wants_prompt_logprobs() then
      return self.step:room()
    end
    var spare = free
    for i = index + 1, self.running.size do
      if not self.running.data[i]:is_decoding() then
        spare = spare - 1
      end
    end
    return terralib.select(spare > 0, spare, smaller(free, 1))
  end
end
