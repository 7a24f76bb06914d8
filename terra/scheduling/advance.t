local abi = require("terra.base.abi")
local check = require("terra.base.check")
local lists = require("terra.scheduling.lists")
local numbers = require("terra.base.numbers")
local pages = require("terra.scheduling.pages")
local sequence = require("terra.scheduling.sequence")
local C = abi.C

local Sequence = sequence.Sequence
local none = pages.none
local smaller = numbers.smaller(int32)

return function(Scheduler)
  terra Scheduler:share_page(item : &Sequence, index : int32, canonical : int32)
    var page = item.pages.data[index]
    if canonical ~= page then
      self.pool:retain(canonical)
      self.pool:release(page)
      item.pages.data[index] = canonical
      self:set_page(item, index, canonical)
    end
  end

  terra Scheduler:register_pages(item : &Sequence)
    if self.options.engine.prefix_cache == 0 then
      return
    end
    check.invariant(item.num_computed <= item.tokens.size, "pages with unknown tokens entered the prefix cache")
    var page_size = self.options.engine.page_size
    var computed = item.num_computed
    if not self.options.caches_answers and computed > item.prompt_length then
      computed = item.prompt_length
    end
    while (item.num_registered + 1) * page_size <= computed do
      var index = item.num_registered
      var parent = none
      if index > 0 then
        parent = item.pages.data[index - 1]
      end
      var canonical = self.pool:register(item.pages.data[index], parent, item.tokens.data + index * page_size)
      self:share_page(item, index, canonical)
      item.num_registered = index + 1
    end
  end

  terra Scheduler:capture_logits(item : &Sequence, row : int32)
    var index = item:num_outputs()
    if index < item.logits_capacity and self.step.logits ~= nil then
      var vocab_size : int64 = self.step.shape.vocab_size
      C.memcpy(item.logits + index * vocab_size, self.step.logits + row * vocab_size, vocab_size * sizeof(float))
    end
  end

  terra Scheduler:capture_draft_logits(item : &Sequence, segment : &lists.Segment)
    var index = item:num_outputs() - 1
    if item.draft_logits ~= nil and segment.draft_row >= 0 and index < item.logits_capacity and self.step.draft_logits ~= nil then
      var vocab_size : int64 = self.step.shape.vocab_size
      C.memcpy(item.draft_logits + index * vocab_size, self.step.draft_logits + segment.draft_row * vocab_size, vocab_size * sizeof(float))
    end
  end

  terra Scheduler:wants_logits() : bool
    for i = 0, self.segments.size do
      var segment = self.segments.data[i]
      if segment.sample_row >= 0 and segment.sequence:num_outputs() < segment.sequence.logits_capacity then
        return true
      end
    end
    return false
  end

  terra Scheduler:num_best(wanted : int32, row : int32) : int32
    var most = smaller(wanted, self.step.shape.vocab_size)
    for i = 0, most do
      if self.step.outputs.top_ids[row * C.GLM_MAX_LOGPROBS + i] < 0 then
        return i
      end
    end
    return most
  end

  terra Scheduler:post_token(item : &Sequence, kind : int32, row : int32, token : int32, num_logprobs : int32) : &C.engine_event
    var outputs = &self.step.outputs
    var event = self:new_event(item, kind)
    event.token_id = token
    event.num_logprobs = self:num_best(num_logprobs, row)
    if event.num_logprobs >= 0 then
      event.logprob = outputs.logprob[row]
      for i = 0, event.num_logprobs do
        event.top_ids[i] = outputs.top_ids[row * C.GLM_MAX_LOGPROBS + i]
        event.top_logprobs[i] = outputs.top_logprobs[row * C.GLM_MAX_LOGPROBS + i]
      end
    end
    return event
  end

  terra Scheduler:withdraw_pages(item : &Sequence)
    while item.num_registered > 0 and self.pool:withdraw(item.pages.data[item.num_registered - 1]) do
      item.num_registered = item.num_registered - 1
    end
  end

  terra Scheduler:fail_not_finite(item : &Sequence, position : int64)
    var text : int8[C.ENGINE_EVENT_MESSAGE_CAPACITY]
    var next, place = position + 1, "prompt"
    if next >= item.prompt_length then
      next, place = next - item.prompt_length, "output"
    end
    C.snprintf(&text[0], C.ENGINE_EVENT_MESSAGE_CAPACITY, "the logits after position %lld (for token %lld of the %s) are not finite",
      position, next, place)
    self:withdraw_pages(item)
    self:fail(item, C.GLM_NUMERIC_ERROR, &text[0])
  end

  terra Scheduler:fail_without_token(item : &Sequence)
    var text : int8[C.ENGINE_EVENT_MESSAGE_CAPACITY]
    var code, cause = C.GLM_NUMERIC_ERROR, "penalties and biases leave no tokens to sample"
    if item:mask_allows_nothing(self.step.shape.vocab_size) then
      code, cause = C.GLM_INVALID_ARGUMENT, "the mask allows no tokens"
      if item.rules:is_active() then
        cause = "the allowed tokens, bad words and mask leave no tokens to sample"
      end
    elseif item.masks:at(item:num_outputs()) ~= nil then
      cause = "penalties and biases exclude every token that the mask allows"
    end
    C.snprintf(&text[0], C.ENGINE_EVENT_MESSAGE_CAPACITY, "%s at output position %d", cause, item:num_outputs())
    self:fail(item, code, &text[0])
  end

  terra Scheduler:accept(item : &Sequence, segment : &lists.Segment, place : int32) : bool
    var row = segment.sample_row + place
    self:capture_logits(item, row)
    var token = self.step.outputs.token_ids[row]
    if self.step.outputs.is_finite[row] == 0 then
      self:fail_not_finite(item, item.tokens.size - 1)
      return false
    elseif token < 0 then
      self:fail_without_token(item)
      return false
    end
    check.bounds(token, self.step.shape.vocab_size)
    check.invariant(item.tokens.size < item.tokens.capacity, "a sequence exceeded the capacity of its token list")
    var event = self:post_token(item, C.ENGINE_EVENT_TOKEN, row, token, item.sampling.num_logprobs)
    item:take_token(token)
    var is_accepted = place < segment:num_drafts() and item:has_drawn_draft(place)
    if is_accepted then
      self:count_accepted(item, place)
    else
      item.layer_draft = self:landed_draft(segment)
      self:capture_draft_logits(item, segment)
    end
    self:offer_drafts(item, event)
    var reason = item:finish_reason()
    if reason ~= C.ENGINE_FINISH_NONE then
      self:finish(item, reason)
    end
    return is_accepted and not item:is_ended()
  end

  terra Scheduler:accept_rows(item : &Sequence, segment : &lists.Segment)
    self:count_drafts(item, segment:num_drafts())
    var place = 0
    while self:accept(item, segment, place) do
      item.num_computed = item.num_computed + 1
      self.counters.num_decode_tokens = self.counters.num_decode_tokens + 1
      self:register_pages(item)
      place = place + 1
    end
    item:estimate_of(segment.is_of_layer):learn(item:num_outputs(), segment:num_drafts(), place)
  end

  terra Scheduler:accept_prompt_rows(item : &Sequence, segment : &lists.Segment)
    var position = item.num_computed - segment.num_tokens
    for i = 0, segment.num_prompt_rows do
      var row = segment.first_prompt_row + i
      if self.step.outputs.is_finite[row] == 0 then
        self:fail_not_finite(item, position + i)
        return
      end
      var index = position + i + 1
      var event = self:post_token(item, C.ENGINE_EVENT_PROMPT_TOKEN, row, item.tokens.data[index], item.num_prompt_logprobs)
      event.index = index
    end
  end

  terra Scheduler:land_segment(item : &Sequence, segment : &lists.Segment)
    item.num_in_flight = 0
    item.num_computed = item.num_computed - segment:num_drafts()
    self:register_pages(item)
    self:accept_prompt_rows(item, segment)
    if item:is_ended() then
      return
    elseif segment.sample_row >= 0 then
      self:accept_rows(item, segment)
    elseif item:awaits_its_end() then
      self:finish(item, C.ENGINE_FINISH_LENGTH)
    end
  end

  terra Scheduler:count_segment(segment : &lists.Segment)
    var counters = &self.counters
    if segment.is_decode then
      counters.num_decode_tokens = counters.num_decode_tokens + 1
    else
      counters.num_prefill_tokens = counters.num_prefill_tokens + segment.num_tokens
    end
  end

  terra Scheduler:launch()
    check.invariant(not self:is_in_flight(), "a forward pass was launched while another was in flight")
    for i = 0, self.segments.size do
      var segment = &self.segments.data[i]
      self:count_segment(segment)
      var item = segment.sequence
      if item ~= nil then
        item:launch_drafts(segment:num_drafts(), segment.is_of_layer)
        item.draft_row = segment.draft_row
        item.num_computed = item.num_computed + segment.num_tokens
        item.num_in_flight = terralib.select(segment.sample_row >= 0, 1 + segment:num_drafts(), 0)
        item.first_row = segment.sample_row
      end
    end
    self.segments, self.launched = self.launched, self.segments
    self.is_unsampled = self.step:awaits_masks()
  end

  terra Scheduler:land(now_ns : int64)
    check.invariant(not self.is_unsampled, "a forward pass was marked complete before its tokens were sampled")
    self.now_ns = now_ns
    self.counters.num_steps = self.counters.num_steps + 1
    for i = 0, self.launched.size do
      var segment = self.launched.data[i]
      var item = segment.sequence
      self.launched.data[i].sequence = nil
      if item ~= nil then
        self:land_segment(item, &segment)
      end
    end
    self.launched:clear()
  end

  terra Scheduler:advance(now_ns : int64)
    self:table_uploaded()
    self:launch()
    self:land(now_ns)
  end

  terra Scheduler:fail_segments(list : &lists.SegmentList, code : int32, text : rawstring)
    for i = 0, list.size do
      var item = list.data[i].sequence
      list.data[i].sequence = nil
      if item ~= nil then
        self:fail(item, code, text)
      end
    end
    list:clear()
  end

  terra Scheduler:fail_step(code : int32, text : rawstring)
    self:fail_segments(&self.segments, code, text)
  end

  terra Scheduler:fail_landing(code : int32, text : rawstring)
    self.is_unsampled = false
    self:fail_segments(&self.launched, code, text)
  end

  terra Scheduler:count_references(list : &lists.SequenceList) : int64
    var count : int64 = 0
    for i = 0, list.size do
      count = count + list.data[i].pages.size
    end
    return count
  end

  terra Scheduler:table_is_current(item : &Sequence) : bool
    var row = self.step:page_table_of(item.table_row)
    for i = 0, item.pages.size do
      if row[i] ~= item.pages.data[i] then
        return false
      end
    end
    return true
  end

  terra Scheduler:is_registered(item : &Sequence) : bool
    if item.num_registered * self.options.engine.page_size > item.num_computed then
      return false
    end
    var parent = none
    for i = 0, item.num_registered do
      var entry = self.pool:at(item.pages.data[i])
      if not entry.is_registered or entry.parent ~= parent then
        return false
      end
      parent = item.pages.data[i]
    end
    return true
  end

  terra Scheduler:is_consistent() : bool
    var references : int64 = 0
    for page = 0, self.pool.num_pages do
      references = references + self.pool.pages[page].reference_count
    end
    var held = self:count_references(&self.running) + self:count_references(&self.states)
    if references ~= held or self:count_references(&self.waiting) ~= 0 then
      return false
    end
    for i = 0, self.running.size do
      if not self:table_is_current(self.running.data[i]) or not self:is_registered(self.running.data[i]) then
        return false
      end
    end
    var rows = self.running.size + self.states.size + self.free_rows.size
    return rows == self.options.engine.max_batch and self.pool:is_consistent()
  end
end
