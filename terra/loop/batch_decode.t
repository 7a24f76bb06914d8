local abi = require("terra.base.abi")
local request = require("terra.scheduling.request")
local sequence = require("terra.scheduling.sequence")
local status = require("terra.base.status")
local C = abi.C

local Sequence = sequence.Sequence

local terra runs_prefill_row(item : &Sequence) : bool
  return item:num_uncomputed() == 0 and item.last_row_is_prefill
end

return function(Loop)
  terra Loop:check_batch_state(num_states : int32, states : &&Sequence, index : int32, num_steps : int32, message : &C.glm_message) : int32
    status.try(self:check_state(states[index], num_steps, message))
    for i = 0, index do
      status.refuse(message, states[i] == states[index], "states[%d] repeats states[%d]", index, i)
    end
    return C.GLM_OK
  end

  terra Loop:check_batch_arguments(num_states : int32, states : &opaque, sampling : &C.engine_sampling, num_steps : int32, tokens : &int32, message : &C.glm_message) : int32
    var most = self.step.shape.max_logit_rows
    status.refuse(message, num_states < 0 or num_states > most, "num_states is %d; expected 0 to %d", num_states, most)
    status.refuse(message, num_steps < 0, "num_steps is %d; expected 0 or more", num_steps)
    status.refuse(message, num_states > self.step.shape.max_step_tokens, "num_states is %d, but a forward pass supports at most %d tokens", num_states, self.step.shape.max_step_tokens)
    status.refuse(message, num_states > 0 and (states == nil or sampling == nil or (tokens == nil and num_steps > 0)), "states, sampling or tokens is null")
    return C.GLM_OK
  end

  terra Loop:check_batch(num_states : int32, states : &&Sequence, sampling : &C.engine_sampling, num_steps : int32, tokens : &int32, message : &C.glm_message) : int32
    status.try(self:check_batch_arguments(num_states, states, sampling, num_steps, tokens, message))
    for i = 0, num_states do
      status.try(self:check_batch_state(num_states, states, i, num_steps, message))
      status.try(request.check_sampling(&sampling[i], message))
    end
    return C.GLM_OK
  end

  terra Loop:prepare_batch_state(item : &Sequence, sampling : &C.engine_sampling, num_steps : int32, message : &C.glm_message) : int32
    item.sampling = @sampling
    item.sampling.num_logprobs = -1
    status.try(self:grow_state(item, item.tokens.size + num_steps, message))
    if item:has_penalties() then
      return self:recount(item, message)
    end
    return C.GLM_OK
  end

  terra Loop:add_batch_row(item : &Sequence, is_prefill : bool)
    var position = item.tokens.size - 1
    if is_prefill then
      self.step:add_segment(item.table_row, position, 1, item.tokens.data, self.options.page_size)
    else
      self.step:add_decode_segment(item.table_row, position, item.tokens.data, self.options.page_size)
      item.last_row_is_prefill = false
    end
    item.sample_row = self.scheduler:add_sample_row(item, 0)
  end

  terra Loop:write_batch_step(num_states : int32, states : &&Sequence)
    self.step:begin()
    for i = 0, num_states do
      if not runs_prefill_row(states[i]) then
        self:add_batch_row(states[i], false)
      end
    end
    for i = 0, num_states do
      if runs_prefill_row(states[i]) then
        self:add_batch_row(states[i], true)
      end
    end
  end

  terra Loop:take_batch_tokens(num_states : int32, states : &&Sequence, tokens : &int32, message : &C.glm_message) : int32
    var outputs = &self.step.outputs
    for i = 0, num_states do
      var item = states[i]
      item.num_computed = item.tokens.size
      if outputs.is_finite[item.sample_row] == 0 then
        return status.fail(message, C.GLM_NUMERIC_ERROR, "the logits of states[%d] after position %lld are not finite", i, item.tokens.size - 1)
      elseif outputs.token_ids[item.sample_row] < 0 then
        return status.fail(message, C.GLM_NUMERIC_ERROR, "penalties leave no tokens to sample for states[%d] after position %lld", i, item.tokens.size - 1)
      end
    end
    for i = 0, num_states do
      tokens[i] = outputs.token_ids[states[i].sample_row]
      states[i].tokens:push(tokens[i])
    end
    return C.GLM_OK
  end

  terra Loop:batch_in_turn(num_states : int32, states : &&Sequence, sampling : &C.engine_sampling, num_steps : int32, tokens : &int32, message : &C.glm_message) : int32
    status.try(self:check_usable_locked(message))
    status.try(self:check_batch(num_states, states, sampling, num_steps, tokens, message))
    if num_states == 0 then
      return C.GLM_OK
    end
    var missing = 0
    for i = 0, num_states do
      missing = missing + self:missing_pages(states[i], states[i].tokens.size + num_steps)
    end
    status.try(self:check_room(missing, message))
    for i = 0, num_states do
      status.try(self:prepare_batch_state(states[i], &sampling[i], num_steps, message))
    end
    for step = 0, num_steps do
      self:write_batch_step(num_states, states)
      status.try(self:run_step(message))
      status.try(self:take_batch_tokens(num_states, states, tokens + [int64](step) * num_states, message))
    end
    return C.GLM_OK
  end

  terra Loop:run_batch_decode(num_states : int32, states : &&Sequence, sampling : &C.engine_sampling, num_steps : int32, tokens : &int32, message : &C.glm_message) : int32
    return self:in_turn(message, self:batch_in_turn(num_states, states, sampling, num_steps, tokens, message))
  end
end
