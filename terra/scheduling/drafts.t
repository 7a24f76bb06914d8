local abi = require("terra.base.abi")
local check = require("terra.base.check")
local lists = require("terra.scheduling.lists")
local numbers = require("terra.base.numbers")
local pages = require("terra.scheduling.pages")
local sequence = require("terra.scheduling.sequence")
local C = abi.C

local Sequence = sequence.Sequence

local steps_between_probes = 16

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

  terra Scheduler:weighs_drafts() : bool
    return self.options.engine.speculate == C.ENGINE_SPECULATE_AUTO
  end

  terra Scheduler:look_up_drafts(item : &Sequence)
    if not item:looks_up_its_drafts() then
      return
    end
    item:look_up_drafts()
    if self.options.engine.acceptance_length > 0.0f and not item.uses_layer then
      item:invent_drafts(self.step.shape.vocab_size)
    end
  end

  terra Scheduler:price_drafts()
    var rows, context = 0, 0LL
    for i = 0, self.running.size do
      var item = self.running.data[i]
      if self:wants_decode_row(item) then
        rows = rows + 1
        context = context + item:length()
      end
    end
    self.draft_price = self.options.costs:price_of_draft(greater(rows, 1), context)
  end

  terra Scheduler:is_probe_of_text(item : &Sequence) : bool
    return item.num_in_flight <= 1 and item.text_estimate:is_uncertain(item:num_planned_outputs())
  end

  terra Scheduler:prefers_layer(item : &Sequence) : bool
    return item.layer_estimate:value(1, self.draft_price) >= item.text_value
  end

  terra Scheduler:is_better_with_layer(item : &Sequence) : bool
    return not item.masks:is_on() and self:prefers_layer(item) and not self:is_probe_of_text(item)
  end

  terra Scheduler:find_drafts_of(item : &Sequence)
    self:look_up_drafts(item)
    var num_text = smaller(item:num_text_drafts(), self.step.shape.rows_per_sequence - 1)
    item.text_value = item.text_estimate:value(num_text, self.draft_price)
    item.is_of_layer = item:num_layer_drafts() > 0 and (num_text == 0 or self:is_better_with_layer(item))
    item.num_drafts = terralib.select(item.is_of_layer, item:num_layer_drafts(), num_text)
  end

  terra Scheduler:find_drafts()
    for i = 0, self.running.size do
      var item = self.running.data[i]
      item.num_drafts = 0
      item.is_of_layer = false
      item.text_value = 0
      if self:wants_decode_row(item) then
        self:find_drafts_of(item)
      end
    end
  end

  terra Scheduler:weigh_drafts()
    var choice = &self.draft_choice
    choice:begin(&self.options.costs, self:spare_decode_rows())
    for i = 0, self.running.size do
      var item = self.running.data[i]
      if self:wants_decode_row(item) then
        var estimate = item:estimate_of(item.is_of_layer)
        var is_due = item.num_in_flight <= 1 and estimate:is_due(item:num_planned_outputs())
        choice:add(estimate, item:length(), is_due, &item.num_drafts)
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
    if self:weighs_drafts() then
      self:price_drafts()
    end
    self:find_drafts()
    if self:weighs_drafts() then
      self:weigh_drafts()
    end
    self:place_drafts()
  end

  terra Scheduler:value_of_layer(item : &Sequence) : float
    var value = item.layer_estimate:value(1, self.draft_price)
    return terralib.select(item:guides_with_lookup() or value < item.text_value, 0.0f, value)
  end

  terra Scheduler:probes_layer(item : &Sequence) : bool
    var is_due = item.layer_estimate:is_due(item:num_planned_outputs() + 1)
    return is_due and self.counters.num_steps % steps_between_probes == 0 and not item:guides_with_lookup() and self:prefers_layer(item)
  end

  terra Scheduler:does_layer_pay() : bool
    var rows, context, value = 0, 0LL, 0.0f
    for i = 0, self.segments.size do
      var segment = &self.segments.data[i]
      if segment.sample_row >= 0 then
        rows = rows + 1
        context = context + segment.sequence:length()
        value = value + self:value_of_layer(segment.sequence)
      end
    end
    return rows > 0 and value > self.options.costs:tokens_in(self.options.costs.draft_ns, rows, context)
  end

  terra Scheduler:may_draft(item : &Sequence, does_layer_pay : bool) : bool
    return not self:weighs_drafts() or does_layer_pay and self:value_of_layer(item) > 0 or self:probes_layer(item)
  end

  terra Scheduler:ask_for_drafts()
    if not self.step.shape:drafts_with_layer() then
      return
    end
    var spare, does_layer_pay = self:spare_decode_rows(), self:weighs_drafts() and self:does_layer_pay()
    for i = 0, self.segments.size do
      var segment = &self.segments.data[i]
      var item, index = segment.sequence, self.step.num_draft_rows
      if segment.sample_row >= 0 and index < spare and item:wants_draft_behind_its_token() and self:may_draft(item, does_layer_pay) then
        self.step:add_draft_row(segment.sample_row)
        segment.draft_row = index
      end
    end
    self.step:write_draft_rows()
  end

  terra Scheduler:landed_draft(segment : &lists.Segment) : int32
    if segment.draft_row < 0 then
      return -1
    end
    var draft = self.step.outputs.draft_ids[segment.draft_row]
    check.invariant(draft < self.step.shape.vocab_size, "the prediction layer drafted a token outside the vocabulary")
    return draft
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
    if item.masks:is_on() and event.num_drafts == 0 and item.layer_draft >= 0 then
      event.num_drafts = 1
      event.drafts[0] = item.layer_draft
    end
  end
end
