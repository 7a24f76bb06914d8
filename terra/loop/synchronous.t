local abi = require("terra.base.abi")
local lists = require("terra.scheduling.lists")
local numbers = require("terra.base.numbers")
local request = require("terra.scheduling.request")
local sequence = require("terra.scheduling.sequence")
local status = require("terra.base.status")
local C = abi.C

local Sequence = sequence.Sequence

local smaller, greater = numbers.smaller(int32), numbers.greater(int32)

local terra first_not_finite(logits : &float, num_rows : int32, width : int32) : int32
  for row = 0, num_rows do
    var row_logits = logits + [int64](row) * width
    for i = 0, width do
      var value = row_logits[i]
      if not (value - value == 0.0f) then
        return row
      end
    end
  end
  return -1
end

return function(Loop)
  terra Loop:open_state(tokens : &int32, num_tokens : int32, result : &&Sequence, message : &C.glm_message) : int32
    var s = &self.scheduler
    status.fail_if(message, s.free_rows.size == 0, C.GLM_OUT_OF_MEMORY, "all %d sequence slots (max_batch) are in use", self.options.max_batch)
    var item = request.new_sequence()
    if item == nil or not request.reserve(item, self.options.max_seq, self.options.page_size) then
      if item ~= nil then
        request.delete_sequence(item)
      end
      return status.fail(message, C.GLM_OUT_OF_MEMORY, "not enough host memory for a state with %d tokens", self.options.max_seq)
    end
    item.owner = self
    item.state = [sequence.RUNNING]
    request.set_prompt(item, tokens, num_tokens)
    s:take_row(item)
    lists.append(&s.states, item)
    @result = item
    return C.GLM_OK
  end

  terra Loop:close_state(item : &Sequence)
    lists.remove(&self.scheduler.states, item)
    self.scheduler:release_pages(item)
    self.scheduler:give_row(item)
    request.delete_sequence(item)
  end

  terra Loop:missing_pages(item : &Sequence, num_tokens : int32) : int32
    return greater(self.scheduler:pages_for(num_tokens) - [int32](item.pages.size), 0)
  end

  terra Loop:check_room(num_pages : int32, message : &C.glm_message) : int32
    var pool = &self.scheduler.pool
    status.fail_if(message, num_pages > pool:num_available(), C.GLM_OUT_OF_MEMORY, "%d more KV cache pages are needed, but only %d of %d are free", num_pages, pool:num_available(), pool.num_pages)
    return C.GLM_OK
  end

  terra Loop:grow_state(item : &Sequence, num_tokens : int32, message : &C.glm_message) : int32
    var missing = self:missing_pages(item, num_tokens)
    status.try(self:check_room(missing, message))
    for i = 0, missing do
      self.scheduler:push_page(item, self.scheduler.pool:acquire())
    end
    return C.GLM_OK
  end

  terra Loop:run_step(message : &C.glm_message) : int32
    self.scheduler:write_table_range()
    var code = self.ranks:step(&self.step, message)
    if code ~= C.GLM_OK then
      if message ~= nil then
        self.failure = @message
      end
      self:check_ranks()
      return code
    end
    var counters = &self.scheduler.counters
    self.scheduler:table_uploaded()
    counters.num_steps = counters.num_steps + 1
    counters.num_decode_tokens = counters.num_decode_tokens + self.step.num_decode_tokens
    counters.num_prefill_tokens = counters.num_prefill_tokens + self.step.num_tokens - self.step.num_decode_tokens
    return C.GLM_OK
  end

  terra Loop:check_logits(logits : &float, num_rows : int32, position : int32, message : &C.glm_message) : int32
    var row = first_not_finite(logits, num_rows, self.step.shape.vocab_size)
    status.fail_if(message, row >= 0, C.GLM_NUMERIC_ERROR, "the logits after position %d are not finite", position + row)
    return C.GLM_OK
  end

  terra Loop:prefill_chunk_size(item : &Sequence, all_positions : bool) : int32
    var count = smaller(item:num_uncomputed(), self.step.shape.max_step_tokens)
    if self.options.prefill_chunk > 0 then
      count = smaller(count, self.options.prefill_chunk)
    end
    if all_positions then
      count = smaller(count, self.step.shape.max_logit_rows)
    end
    return count
  end

  terra Loop:prefill_one_chunk(item : &Sequence, all_positions : bool, logits : &float, message : &C.glm_message) : int32
    var begin, count = item.num_computed, self:prefill_chunk_size(item, all_positions)
    self.step:begin()
    self.step:add_segment(item.table_row, begin, count, item.tokens.data, self.options.page_size)
    if logits ~= nil and all_positions then
      for row = 0, count do
        self.step:add_logit_row(row)
      end
      self.step.logits = logits + [int64](begin) * self.step.shape.vocab_size
    elseif logits ~= nil and begin + count == item.prompt_length then
      self.step:add_logit_row(count - 1)
      self.step.logits = logits
    end
    status.try(self:run_step(message))
    item.num_computed = begin + count
    item.last_row_is_prefill = true
    var num_rows = self.step.num_logit_rows
    return self:check_logits(self.step.logits, num_rows, item.num_computed - num_rows, message)
  end

  terra Loop:prefill_state(item : &Sequence, all_positions : bool, logits : &float, message : &C.glm_message) : int32
    status.try(self:grow_state(item, item.prompt_length, message))
    while item:num_uncomputed() > 0 do
      status.try(self:prefill_one_chunk(item, all_positions, logits, message))
    end
    return C.GLM_OK
  end

  terra Loop:check_usable_locked(message : &C.glm_message) : int32
    self:lock()
    var code = self:check_usable(message)
    self:unlock()
    return code
  end

  terra Loop:prefill_in_turn(tokens : &int32, num_tokens : int32, all_positions : bool, logits : &float, result : &&Sequence, message : &C.glm_message) : int32
    status.try(self:check_usable_locked(message))
    var limits = self:limits()
    status.try(request.check_prompt(tokens, num_tokens, &limits, message))
    status.try(request.check_pool(self.scheduler:pages_for(num_tokens), &limits, message))
    var item : &Sequence
    status.try(self:open_state(tokens, num_tokens, &item, message))
    var code = self:prefill_state(item, all_positions, logits, message)
    if code ~= C.GLM_OK then
      self:close_state(item)
      return code
    end
    @result = item
    return C.GLM_OK
  end

  terra Loop:leave_turn()
    self:publish()
    self:wake()
    self.turnstile:leave()
  end

  Loop.methods.in_turn = macro(function(self, message, call)
    return quote
      var own : C.glm_message
      if message == nil then
        message = &own
      end
      status.clear(message)
      self:enter_turn()
      var code = call
      self:leave_turn()
    in
      code
    end
  end)

  terra Loop:prefill(tokens : &int32, num_tokens : int32, all_positions : bool, logits : &float, result : &&Sequence, message : &C.glm_message) : int32
    status.refuse(message, result == nil, "state is null")
    @result = nil
    return self:in_turn(message, self:prefill_in_turn(tokens, num_tokens, all_positions, logits, result, message))
  end

  terra Loop:check_state(item : &Sequence, num_new_tokens : int32, message : &C.glm_message) : int32
    status.refuse(message, item == nil or item.owner ~= [&opaque](self), "the state is null, already freed or from another engine")
    status.refuse(message, item.tokens.size + num_new_tokens > self.options.max_seq, "a state with %lld tokens has no room for %d more: max_seq is %d", item.tokens.size, num_new_tokens, self.options.max_seq)
    return C.GLM_OK
  end

  terra Loop:decode_uncomputed(item : &Sequence, logits : &float, message : &C.glm_message) : int32
    self.step:begin()
    for row = 0, item:num_uncomputed() do
      self.step:add_decode_segment(item.table_row, item.num_computed + row, item.tokens.data, self.options.page_size)
      if logits ~= nil then
        self.step:add_logit_row(row)
        self.step.logits = logits
      end
    end
    status.try(self:run_step(message))
    var first = item.num_computed
    item.num_computed = [int32](item.tokens.size)
    item.last_row_is_prefill = false
    return self:check_logits(logits, self.step.num_logit_rows, first, message)
  end

  terra Loop:check_rows(num_tokens : int32, message : &C.glm_message) : int32
    var most = smaller(self.step.shape.rows_per_sequence, self.step.shape:most_decode_rows())
    status.refuse(message, num_tokens < 1 or num_tokens > most, "num_tokens is %d; expected 1 to %d (max_draft_tokens + 1)", num_tokens, most)
    return C.GLM_OK
  end

  terra Loop:decode_in_turn(item : &Sequence, tokens : &int32, num_tokens : int32, logits : &float, message : &C.glm_message) : int32
    status.try(self:check_usable_locked(message))
    status.try(self:check_rows(num_tokens, message))
    status.try(self:check_state(item, num_tokens, message))
    status.try(request.check_tokens("tokens", tokens, num_tokens, self.model.vocab_size, message))
    status.try(self:grow_state(item, item.tokens.size + num_tokens, message))
    if item:num_uncomputed() > 0 then
      status.try(self:decode_uncomputed(item, nil, message))
    end
    for i = 0, num_tokens do
      item.tokens:push(tokens[i])
    end
    var code = self:decode_uncomputed(item, logits, message)
    item.tokens.size = item.num_computed
    return code
  end

  terra Loop:decode_tokens(item : &Sequence, tokens : &int32, num_tokens : int32, logits : &float, message : &C.glm_message) : int32
    return self:in_turn(message, self:decode_in_turn(item, tokens, num_tokens, logits, message))
  end

  terra Loop:free_state(item : &Sequence)
    self:enter_turn()
    self:close_state(item)
    self:leave_turn()
  end
end
