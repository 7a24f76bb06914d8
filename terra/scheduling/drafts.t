local abi = require("terra.base.abi")
local numbers = require("terra.base.numbers")
local pages = require("terra.scheduling.pages")
local sequence = require("terra.scheduling.sequence")
local C = abi.C

local Sequence = sequence.Sequence

local smaller, greater = numbers.smaller(int32), numbers.greater(int32)

return function(Scheduler)
  terra Scheduler:own_pages_for_drafts(item : &Sequence, wanted : int32) : int32
    var page_size = self.options.engine.page_size
    while item.pages.size * page_size < item:next_length() + wanted do
      var page = self.pool:acquire()
      if page == [pages.none] then
        return smaller(wanted, [int32](item.pages.size) * page_size - item:next_length())
      end
      self:push_page(item, page)
    end
    return wanted
  end

  terra Scheduler:spare_decode_rows() : int32
    var admitted = smaller([int32](self.waiting.size), [int32](self.free_rows.size))
    return greater(self.step.shape:most_decode_rows() - [int32](self.running.size) - admitted, 0)
  end

  terra Scheduler:look_up_drafts(item : &Sequence)
    if not item:looks_up_its_drafts() then
      return
    end
    item:look_up_drafts()
    if self.options.engine.acceptance_length > 0.0f then
      item:invent_drafts(self.step.shape.vocab_size)
    end
  end

  terra Scheduler:find_drafts()
    for i = 0, self.running.size do
      var item = self.running.data[i]
      item.num_drafts = 0
      if self:wants_decode_row(item) then
        self:look_up_drafts(item)
        item.num_drafts = greater(smaller(item:most_drafts(), self.step.shape.rows_per_sequence - 1), 0)
      end
    end
  end

  terra Scheduler:weigh_drafts()
    var choice = &self.draft_choice
    choice:begin(&self.options.costs, self:spare_decode_rows())
    for i = 0, self.running.size do
      var item = self.running.data[i]
      if self:wants_decode_row(item) then
        var is_due = item.num_in_flight <= 1 and item.draft_estimate:is_due(item:num_planned_outputs())
        choice:add(&item.draft_estimate, item:length(), is_due, &item.num_drafts)
      end
    end
    choice:choose()
  end

  terra Scheduler:place_drafts()
    var spare = self:spare_decode_rows()
    for i = 0, self.running.size do
      var item = self.running.data[i]
      item.num_drafts = smaller(item.num_drafts, spare)
      if item.num_drafts > 0 then
        item.num_drafts = self:own_pages_for_drafts(item, item.num_drafts)
        spare = spare - item.num_drafts
      end
    end
  end

  terra Scheduler:choose_drafts()
    self:find_drafts()
    if self.options.engine.speculate == C.ENGINE_SPECULATE_AUTO then
      self:weigh_drafts()
    end
    self:place_drafts()
  end

  terra Scheduler:count_drafts(item : &Sequence, num_drafts : int32)
    if num_drafts > 0 then
      item.num_draft_tokens = item.num_draft_tokens + num_drafts
      self.counters.num_drafts = self.counters.num_drafts + 1
      self.counters.num_draft_tokens = self.counters.num_draft_tokens + num_drafts
    end
  end

  terra Scheduler:count_accepted(item : &Sequence, place : int32)
    item.num_accepted_tokens = item.num_accepted_tokens + 1
    self.counters.num_accepted_tokens = self.counters.num_accepted_tokens + 1
    self.counters.num_accepted_at[place] = self.counters.num_accepted_at[place] + 1
  end

  terra Scheduler:offer_drafts(item : &Sequence, event : &C.engine_event)
    if item.masks:is_on() and item.lookup:is_on() then
      var most = smaller(self.step.shape.rows_per_sequence - 1, item:most_looked_up())
      event.num_drafts = item.lookup:continuation(&event.drafts[0], most)
    end
  end
end
