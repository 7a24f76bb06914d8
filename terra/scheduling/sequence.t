local abi = require("terra.base.abi")
local containers = require("terra.base.containers")
local draft_estimate = require("terra.scheduling.draft_estimate")
local lookup = require("terra.scheduling.lookup")
local mask_queue = require("terra.scheduling.mask_queue")
local rules = require("terra.scheduling.rules")
local C = abi.C

local sequence = {}

sequence.WAITING = 0
sequence.RUNNING = 1
sequence.PREEMPTED = 2
sequence.ENDED = 3

local suppressed_logit = `[float](-1e9)

local struct Bias {
  token : int32
  value : float
}

local BiasList = containers.Vector(Bias)

local struct Sequence {
  id : uint64
  priority : int32
  state : int32
  tokens : containers.Vector(int32)
  prompt_length : int32
  max_outputs : int32
  min_outputs : int32
  num_computed : int32
  num_in_flight : int32
  first_row : int32
  lookup : lookup.Lookup
  drafts : containers.Vector(int32)
  num_drafts : int32
  text_estimate : draft_estimate.DraftEstimate
  text_value : float
  uses_layer : bool
  is_of_layer : bool
  layer_draft : int32
  draft_row : int32
  layer_estimate : draft_estimate.DraftEstimate
  launched_drafts : int32[C.ENGINE_MAX_DRAFT_TOKENS]
  num_draft_tokens : int32
  num_accepted_tokens : int32
  num_registered : int32
  num_cached_tokens : int32
  table_row : int32
  pages : containers.Vector(int32)
  blocked_version : int64
  saved_pages : containers.Vector(int32)
  saved_data : &opaque
  sampling : C.engine_sampling
  num_prompt_logprobs : int32
  stop_tokens : containers.Vector(int32)
  stop_sequence_begin : containers.Vector(int32)
  stop_sequence_tokens : containers.Vector(int32)
  biases : BiasList
  early_biases : BiasList
  deadline_ns : int64
  logits : &float
  draft_logits : &float
  logits_capacity : int32
  masks : mask_queue.MaskQueue
  rules : rules.TokenRules
  started_ns : int64
  cancel_requested : bool
  preempt_requested : bool
  last_row_is_prefill : bool
  sample_row : int32
  owner : &opaque
}

terra Sequence:init()
  C.memset(self, 0, sizeof(Sequence))
  self.table_row = -1
  self.num_prompt_logprobs = -1
  self.blocked_version = -1
  self.layer_draft = -1
  self.draft_row = -1
  self.text_estimate:init_for_text()
  self.layer_estimate:init_for_layer()
end

terra Sequence:free()
  self.tokens:free()
  self.pages:free()
  self.saved_pages:free()
  self.lookup:free()
  self.drafts:free()
  self.stop_tokens:free()
  self.stop_sequence_begin:free()
  self.stop_sequence_tokens:free()
  self.biases:free()
  self.early_biases:free()
  C.free(self.saved_data)
  self.saved_data = nil
  self.masks:free()
  self.rules:free()
end

terra Sequence:num_outputs() : int32
  return self.tokens.size - self.prompt_length
end

terra Sequence:outputs() : &int32
  return self.tokens.data + self.prompt_length
end

terra Sequence:length() : int32
  return self.tokens.size + self.num_in_flight
end

terra Sequence:num_planned_outputs() : int32
  return self:length() - self.prompt_length
end

terra Sequence:is_decoding() : bool
  return self.num_computed >= self.prompt_length
end

terra Sequence:wants_prompt_logprobs() : bool
  return self.num_prompt_logprobs >= 0
end

terra Sequence:awaits_its_end() : bool
  return self:is_decoding() and self:num_planned_outputs() >= self.max_outputs
end

terra Sequence:awaits_its_mask() : bool
  return self.masks:is_on() and (self.num_in_flight > 0 or self.masks:lacks(self:num_outputs()))
end

terra Sequence:sits_out() : bool
  return self.masks.is_late and self:awaits_its_mask()
end

terra Sequence:lacks_a_mask() : bool
  return self.masks:lacks(self:num_outputs())
end

terra Sequence:awaits_its_token() : bool
  return self.num_in_flight > 0 and self.rules:is_active() and self.rules:needs_last_token()
end

terra Sequence:mask_of_row(offset : int32) : &uint32
  var given = self.masks:at(self:num_outputs() + offset)
  if not self.rules:is_active() then
    return given
  end
  var outputs, num_outputs = self:outputs(), self:num_outputs()
  var progress = self.rules.progress
  for i = num_outputs, num_outputs + offset do
    self.rules:take(outputs[i], i)
  end
  var mask = self.rules:next_mask(given, outputs, num_outputs + offset)
  self.rules.progress = progress
  return mask
end

terra Sequence:next_mask() : &uint32
  return self:mask_of_row(0)
end

terra Sequence:mask_allows_nothing(num_tokens : int32) : bool
  var mask = self:next_mask()
  if mask == nil then
    return false
  end
  for token = 0, num_tokens do
    if (mask[token / 32] >> [uint32](token % 32) and 1) ~= 0 then
      return false
    end
  end
  return true
end

terra Sequence:take_token(token : int32)
  self.tokens:push(token)
  if self.lookup:is_on() then
    self.lookup:push(token)
  end
  if self.rules:is_active() then
    self.rules:take(token, self:num_outputs() - 1)
  end
end

terra Sequence:next_length() : int32
  if self:awaits_its_end() or self:sits_out() then
    return self.num_computed
  end
  return self:length()
end

terra Sequence:num_uncomputed() : int32
  return self:length() - self.num_computed
end

terra Sequence:is_ended() : bool
  return self.state == [sequence.ENDED]
end

terra Sequence:pages_for(num_tokens : int32, page_size : int32) : int32
  return (num_tokens + page_size - 1) / page_size
end

terra Sequence:most_tokens_computed() : int32
  return self.prompt_length + terralib.select(self.max_outputs > 0, self.max_outputs - 1, 0)
end

terra Sequence:precedes(other : &Sequence) : bool
  if self.priority ~= other.priority then
    return self.priority > other.priority
  end
  return self.id < other.id
end

terra Sequence:has_penalties() : bool
  var s = &self.sampling
  return s.repetition_penalty ~= 1.0f or s.frequency_penalty ~= 0.0f or s.presence_penalty ~= 0.0f
end

terra Sequence:biases_of_row(offset : int32) : &BiasList
  if self:num_planned_outputs() + offset < self.min_outputs then
    return &self.early_biases
  end
  return &self.biases
end

terra Sequence:is_stop_token(token : int32) : bool
  for i = 0, self.stop_tokens.size do
    if self.stop_tokens.data[i] == token then
      return true
    end
  end
  return false
end

terra Sequence:ends_with(begin : int32, finish : int32) : bool
  var length = finish - begin
  if length > self:num_outputs() then
    return false
  end
  var tail = self.tokens.data + (self.tokens.size - length)
  return C.memcmp(tail, self.stop_sequence_tokens.data + begin, length * sizeof(int32)) == 0
end

terra Sequence:ends_with_stop_sequence() : bool
  for i = 0, self.stop_sequence_begin.size - 1 do
    if self:ends_with(self.stop_sequence_begin.data[i], self.stop_sequence_begin.data[i + 1]) then
      return true
    end
  end
  return false
end

terra Sequence:finish_reason() : int32
  var has_enough = self:num_outputs() >= self.min_outputs
  var is_bound = self.masks:at(self:num_outputs() - 1) ~= nil or self.rules.only_allowed
  if (has_enough or is_bound) and self:is_stop_token(@self.tokens:last()) then
    return C.ENGINE_FINISH_STOP_TOKEN
  elseif has_enough and self:ends_with_stop_sequence() then
    return C.ENGINE_FINISH_STOP_SEQUENCE
  end
  if self:num_outputs() >= self.max_outputs then
    return C.ENGINE_FINISH_LENGTH
  end
  return C.ENGINE_FINISH_NONE
end

terra Sequence:make_early_biases() : bool
  for i = 0, self.biases.size do
    var bias = self.biases.data[i]
    if not self:is_stop_token(bias.token) and not self.early_biases:push(bias) then
      return false
    end
  end
  for i = 0, self.stop_tokens.size do
    if not self.early_biases:push(Bias { self.stop_tokens.data[i], suppressed_logit }) then
      return false
    end
  end
  return true
end

require("terra.scheduling.draft_tokens")(Sequence)

sequence.Sequence = Sequence
sequence.Bias = Bias
return sequence
