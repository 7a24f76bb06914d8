local check = require("terra.base.check")
local lists = require("terra.scheduling.lists")
local numbers = require("terra.base.numbers")
local pages = require("terra.scheduling.pages")
local sequence = require("terra.scheduling.sequence")

local Sequence = sequence.Sequence
local append, remove, insert_in_order = lists.append, lists.remove, lists.insert_in_order
local none = pages.none

local smaller = numbers.smaller(int32)

return function(Scheduler)
  terra Scheduler:prepare_decode_page(item : &Sequence) : bool
    while item.pages.size * self.options.engine.page_size < item:next_length() do
      var page = self.pool:acquire()
      if page ~= none then
        self:push_page(item, page)
      else
        var youngest = @self.running:last()
        self:preempt(youngest)
        if youngest == item then
          return false
        end
      end
    end
    return true
  end

  terra Scheduler:is_in_flight() : bool
    return self.launched.size > 0
  end

  terra Scheduler:can_plan_ahead() : bool
    var missing : int64 = 0
    for i = 0, self.running.size do
      var item = self.running.data[i]
      var lacking = self:pages_for(item:next_length()) - item.pages.size
      if lacking > 0 then
        missing = missing + lacking
      end
    end
    return missing <= self.pool:num_available()
  end

  terra Scheduler:prepare_running() : bool
    var num_preemptions = self.counters.num_preemptions
    var i = 0
    while i < self.running.size do
      if self:prepare_decode_page(self.running.data[i]) then
        i = i + 1
      end
    end
    return self.counters.num_preemptions > num_preemptions
  end

  terra Scheduler:find_prefix(item : &Sequence, found : &int32) : int32
    if self.options.engine.prefix_cache == 0 or item:wants_prompt_logprobs() or item.state == [sequence.PREEMPTED] and item.num_computed > 0 then
      return 0
    end
    var page_size = self.options.engine.page_size
    var most = (item.prompt_length - 1) / page_size
    var parent = none
    for i = 0, most do
      var page = self.pool:find(parent, item.tokens.data + i * page_size)
      if page == none then
        return i
      end
      found[i] = page
      parent = page
    end
    return most
  end

  terra Scheduler:count_cached(num_pages : int32, found : &int32) : int32
    var count = 0
    for i = 0, num_pages do
      if self.pool:is_cached(found[i]) then
        count = count + 1
      end
    end
    return count
  end

  terra Scheduler:adopt_prefix(item : &Sequence, num_found : int32, found : &int32)
    for i = 0, num_found do
      self.pool:retain(found[i])
    end
    item.pages:clear()
    for i = 0, num_found do
      self:push_page(item, found[i])
    end
    if num_found > 0 then
      item.num_registered = num_found
      item.num_computed = num_found * self.options.engine.page_size
      item.num_cached_tokens = item.num_computed
      self.counters.num_cached_tokens = self.counters.num_cached_tokens + item.num_computed
    end
  end

  terra Scheduler:enter_running(item : &Sequence)
    remove(&self.waiting, item)
    if item.state == [sequence.PREEMPTED] then
      self.num_preempted = self.num_preempted - 1
      if item.num_computed > 0 then
        append(&self.restores, item)
      end
    end
    if item:has_penalties() then
      append(&self.recounts, item)
    end
    if item.started_ns == 0 then
      item.started_ns = self.now_ns
    end
    item.num_drafts = 0
    item.state = [sequence.RUNNING]
    insert_in_order(&self.running, item)
  end

  terra Scheduler:admit(item : &Sequence) : bool
    if item.blocked_version == self.pool.version then
      return false
    end
    var found = item.pages.data
    var num_found = self:find_prefix(item, found)
    var num_needed = self:pages_for(item.tokens.size) - num_found
    if num_needed > self.pool:num_available() - self:count_cached(num_found, found) then
      item.blocked_version = self.pool.version
      return false
    end
    self:take_row(item)
    self:enter_running(item)
    self:adopt_prefix(item, num_found, found)
    for i = 0, num_needed do
      self:push_page(item, self.pool:acquire())
    end
    return true
  end

  terra Scheduler:planned_tokens(most : int32) : int32
    var planned : int64 = 0
    for i = 0, self.running.size do
      planned = planned + self:chunk_of(self.running.data[i])
    end
    return smaller(planned, most)
  end

  terra Scheduler:admit_waiting()
    var most = self:most_step_tokens()
    var planned = self:planned_tokens(most)
    while self.waiting.size > 0 and self.free_rows.size > 0 and planned < most do
      var item = self.waiting.data[0]
      if not self:admit(item) then
        return
      end
      planned = planned + smaller(self:chunk_of(item), most - planned)
    end
  end

  terra Scheduler:can_sample(item : &Sequence, num_rows : int32) : bool
    var step = self.step
    var first, last = item:biases_of_row(0), item:biases_of_row(num_rows - 1)
    var num_biases = first.size + terralib.select(first ~= last, last.size, 0LL)
    return step.num_logit_rows + num_rows <= step.shape.max_logit_rows and step.num_biases + num_biases <= step.shape.max_biases
  end

  terra Scheduler:add_biases(item : &Sequence, row : int32, offset : int32)
    var biases = item:biases_of_row(offset)
    if offset > 0 and biases == item:biases_of_row(offset - 1) then
      self.step:repeat_biases(row)
      return
    end
    for i = 0, biases.size do
      self.step:add_bias(biases.data[i].token, biases.data[i].value)
    end
  end

  terra Scheduler:add_sample_row(item : &Sequence, offset : int32) : int32
    var row = self.step:add_sample_row(self.step.num_tokens - 1, &item.sampling, item:length() + offset, item.table_row, item:has_penalties())
    self.step.inputs.row_offset[row] = offset
    self:add_biases(item, row, offset)
    if item:awaits_its_mask() or item:awaits_its_token() then
      self.step:await_mask()
    else
      self.step:restrict(row, item:mask_of_row(offset))
    end
    return row
  end

  terra Scheduler:push_segment(item : &Sequence, num_tokens : int32, num_prompt_rows : int32, sample_row : int32, is_decode : bool)
    var segment : lists.Segment
    segment.sequence = item
    segment.num_tokens = num_tokens
    segment.first_prompt_row = terralib.select(sample_row >= 0, sample_row, self.step.num_sample_rows) - num_prompt_rows
    segment.num_prompt_rows = num_prompt_rows
    segment.sample_row = sample_row
    segment.draft_row = -1
    segment.is_decode = is_decode
    segment.is_of_layer = is_decode and item.is_of_layer
    segment.awaits_mask = sample_row >= 0 and (item:awaits_its_mask() or item:awaits_its_token())
    self.segments:push(segment)
  end

  terra Scheduler:write_row(item : &Sequence, offset : int32)
    self.step:add_decode_segment(item.table_row, item.num_computed + offset, item.tokens.data, self.options.engine.page_size)
    if item.num_in_flight == 0 then
      return
    end
    self.step:follow_row(item.first_row)
    if offset > 0 and item.is_of_layer then
      self.step:continue_with_draft(item.num_in_flight)
    elseif offset > 0 then
      self.step:continue_with(item.drafts.data + item:num_outputs() + offset, item.num_in_flight)
    end
  end

  terra Scheduler:write_decode_row(item : &Sequence)
    check.invariant(item:num_uncomputed() == 1, "a decoding sequence has more than one token to compute")
    self:write_row(item, 0)
  end

  terra Scheduler:write_rows_of(item : &Sequence)
    item:write_drafts()
    self:write_decode_row(item)
    var first = self:add_sample_row(item, 0)
    for offset = 1, item.num_drafts + 1 do
      self:write_row(item, offset)
      self:add_sample_row(item, offset)
    end
    self:push_segment(item, 1 + item.num_drafts, 0, first, true)
  end

  terra Scheduler:write_decode_rows()
    for i = 0, self.running.size do
      var item = self.running.data[i]
      if self:wants_decode_row(item) and self.step:room() > 0 then
        if not self:can_sample(item, 1 + item.num_drafts) then
          item.num_drafts = 0
        end
        if self:can_sample(item, 1) then
          self:write_rows_of(item)
        end
      end
    end
  end

  terra Scheduler:add_prompt_rows(item : &Sequence, num_tokens : int32) : int32
    if not item:wants_prompt_logprobs() then
      return 0
    end
    var first = self.step.num_tokens - num_tokens
    var count = smaller(num_tokens, item.prompt_length - 1 - item.num_computed)
    for i = 0, count do
      self.step:add_forced_row(first + i, item.tokens.data[item.num_computed + i + 1], item.num_prompt_logprobs)
    end
    return count
  end

  terra Scheduler:write_piece(item : &Sequence, num_tokens : int32)
    var step = self.step
    var is_sampled = item.max_outputs > 0 and item.num_computed + num_tokens == item.prompt_length
    if is_sampled and not self:can_sample(item, 1) then
      return
    end
    self:take_piece(item.num_computed, num_tokens)
    step:add_segment(item.table_row, item.num_computed, num_tokens, item.tokens.data, self.options.engine.page_size)
    if item.num_computed + num_tokens < item.prompt_length then
      step:follow_segment_with(item.tokens.data[item.num_computed + num_tokens])
    end
    var num_prompt_rows = self:add_prompt_rows(item, num_tokens)
    var sample_row = -1
    if is_sampled then
      sample_row = self:add_sample_row(item, 0)
    end
    self:push_segment(item, num_tokens, num_prompt_rows, sample_row, false)
  end

  terra Scheduler:write_pieces()
    for i = 0, self.running.size do
      var item = self.running.data[i]
      var most = smaller(self.step:room(), self:most_prompt_rows(i))
      if not item:is_decoding() and most > 0 then
        var num_tokens = self:piece_of(item.num_computed, smaller(self:chunk_of(item), most))
        if num_tokens == 0 then
          return
        end
        self:write_piece(item, num_tokens)
      end
    end
  end

  terra Scheduler:write_step()
    self.step:begin()
    self.segments:clear()
    self:write_decode_rows()
    self:write_pieces()
    self:ask_for_drafts()
    self:write_table_range()
  end

  terra Scheduler:write_table_range()
    if self.dirty_begin < self.dirty_end then
      self.step.page_table_row_begin = self.dirty_begin
      self.step.page_table_row_end = self.dirty_end
    end
  end

  terra Scheduler:table_uploaded()
    self.dirty_begin = self.options.engine.max_batch
    self.dirty_end = 0
  end

  terra Scheduler:clear_transfers()
    self.saves:clear()
    self.restores:clear()
    self.recounts:clear()
  end

  terra Scheduler:has_transfers() : bool
    return self.saves.size + self.restores.size + self.recounts.size > 0
  end

  terra Scheduler:plan() : bool
    if self:is_in_flight() and not self:can_plan_ahead() then
      return false
    end
    var was_short_of_pages = self:prepare_running()
    self:choose_drafts()
    self:open_budget()
    if not was_short_of_pages then
      self:admit_waiting()
    end
    self:write_step()
    return self.step.num_tokens > 0
  end
end
