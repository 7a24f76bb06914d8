local abi = require("terra.base.abi")
local config = require("terra.checkpoint.config")
local numbers = require("terra.base.numbers")
local sequence = require("terra.scheduling.sequence")
local status = require("terra.base.status")
local C = abi.C

local Sequence = sequence.Sequence
local Bias = sequence.Bias
local ModelConfig = config.ModelConfig
local refuse = status.refuse

local smaller = numbers.smaller(int32)

local request = {}

local greatest_float = `[float](3.4028234e38)
local most_request_biases = 1024
local most_stop_sequences = 1024
local most_bad_words = 4096

local struct Limits {
  vocab_size : int32
  looks_up : bool
  drafts_with_layer : bool
  masks_per_request : int32
  max_seq : int32
  max_biases : int32
  page_size : int32
  num_pages : int32
}
request.Limits = Limits

local terra is_finite(value : float) : bool
  return value >= -greatest_float and value <= greatest_float
end

terra request.default(target : &C.engine_request)
  C.memset(target, 0, sizeof(C.engine_request))
  target.struct_size = sizeof(C.engine_request)
  target.max_tokens = 16
  target.sampling.top_p = 1.0f
  target.sampling.repetition_penalty = 1.0f
  target.sampling.num_logprobs = -1
  target.max_thought_tokens = -1
  target.thought_begin_token = -1
  target.thought_end_token = -1
  target.num_prompt_logprobs = -1
end

terra request.check_tokens(name : rawstring, tokens : &int32, num_tokens : int32, vocab_size : int32, message : &C.glm_message) : int32
  refuse(message, tokens == nil and num_tokens > 0, "%s is null; expected %d tokens", name, num_tokens)
  for i = 0, num_tokens do
    refuse(message, tokens[i] < 0 or tokens[i] >= vocab_size, "%s[%d] is token %d, which is outside the vocabulary of %d tokens", name, i, tokens[i], vocab_size)
  end
  return C.GLM_OK
end

terra request.check_prompt(tokens : &int32, num_tokens : int32, limits : &Limits, message : &C.glm_message) : int32
  refuse(message, num_tokens < 1, "the prompt is empty (%d tokens); expected at least one token", num_tokens)
  refuse(message, num_tokens > limits.max_seq, "the prompt has %d tokens, but the context length (max_seq) is %d", num_tokens, limits.max_seq)
  return request.check_tokens("prompt", tokens, num_tokens, limits.vocab_size, message)
end

local terra check_unit_range(name : rawstring, value : float, message : &C.glm_message) : int32
  refuse(message, not (value >= 0.0f and value <= 1.0f), "%s is %g; expected a number from 0 to 1", name, [double](value))
  return C.GLM_OK
end

terra request.check_sampling(s : &C.engine_sampling, message : &C.glm_message) : int32
  refuse(message, not (s.temperature >= 0.0f and is_finite(s.temperature)), "temperature is %g; expected a finite number of 0 or more", [double](s.temperature))
  status.try(check_unit_range("top_p", s.top_p, message))
  status.try(check_unit_range("min_p", s.min_p, message))
  refuse(message, s.top_k < 0, "top_k is %d; expected 0 (all tokens) or more", s.top_k)
  refuse(message, not (s.repetition_penalty > 0.0f and is_finite(s.repetition_penalty)), "repetition_penalty is %g; expected a finite number greater than 0", [double](s.repetition_penalty))
  refuse(message, not is_finite(s.frequency_penalty), "frequency_penalty is %g; expected a finite number", [double](s.frequency_penalty))
  refuse(message, not is_finite(s.presence_penalty), "presence_penalty is %g; expected a finite number", [double](s.presence_penalty))
  refuse(message, s.num_logprobs < -1 or s.num_logprobs > C.ENGINE_MAX_LOGPROBS, "num_logprobs is %d; expected -1 (none) to %d", s.num_logprobs, C.ENGINE_MAX_LOGPROBS)
  return C.GLM_OK
end

local terra check_sequences(name : rawstring, begin : &int32, tokens : &int32, count : int32, most : int32, limits : &Limits, message : &C.glm_message) : int32
  refuse(message, count < 0 or count > most, "num_%ss is %d; expected 0 to %d", name, count, most)
  if count == 0 then
    return C.GLM_OK
  end
  refuse(message, begin == nil, "%s_begin is null; expected %d offsets", name, count + 1)
  refuse(message, begin[0] ~= 0, "%s_begin[0] is %d; expected 0", name, begin[0])
  for i = 0, count do
    var length = begin[i + 1] - begin[i]
    refuse(message, length < 1, "%s %d has %d tokens; expected at least one", name, i, length)
  end
  var tokens_name : int8[64]
  C.snprintf(&tokens_name[0], 64, "%s_tokens", name)
  return request.check_tokens(&tokens_name[0], tokens, begin[count], limits.vocab_size, message)
end

local terra check_thought(r : &C.engine_request, limits : &Limits, message : &C.glm_message) : int32
  refuse(message, r.max_thought_tokens < -1, "max_thought_tokens is %d; expected -1 (no limit) or more", r.max_thought_tokens)
  if r.max_thought_tokens < 0 then
    return C.GLM_OK
  end
  refuse(message, r.thought_begin_token < -1 or r.thought_begin_token >= limits.vocab_size, "thought_begin_token is %d; expected -1 (none) or a token in the vocabulary of %d tokens", r.thought_begin_token, limits.vocab_size)
  return request.check_tokens("thought_end_token", &r.thought_end_token, 1, limits.vocab_size, message)
end

local terra check_rules(r : &C.engine_request, limits : &Limits, message : &C.glm_message) : int32
  refuse(message, r.num_allowed_tokens < 0, "num_allowed_tokens is %d; expected 0 (all) or more", r.num_allowed_tokens)
  status.try(request.check_tokens("allowed_tokens", r.allowed_tokens, r.num_allowed_tokens, limits.vocab_size, message))
  status.try(check_sequences("bad_word", r.bad_word_begin, r.bad_word_tokens, r.num_bad_words, most_bad_words, limits, message))
  return check_thought(r, limits, message)
end

local terra check_biases(r : &C.engine_request, limits : &Limits, message : &C.glm_message) : int32
  var most = smaller(limits.max_biases, most_request_biases)
  refuse(message, r.num_biases < 0 or r.num_biases > most, "num_biases is %d; expected 0 to %d", r.num_biases, most)
  status.try(request.check_tokens("bias_tokens", r.bias_tokens, r.num_biases, limits.vocab_size, message))
  refuse(message, r.num_biases > 0 and r.bias_values == nil, "bias_values is null; expected %d values", r.num_biases)
  for i = 0, r.num_biases do
    refuse(message, not is_finite(r.bias_values[i]), "bias_values[%d] is %g; expected a finite number", i, [double](r.bias_values[i]))
    for j = 0, i do
      refuse(message, r.bias_tokens[j] == r.bias_tokens[i], "bias_tokens[%d] repeats token %d", i, r.bias_tokens[i])
    end
  end
  return C.GLM_OK
end

terra request.most_outputs(r : &C.engine_request, limits : &Limits) : int32
  return smaller(r.max_tokens, limits.max_seq - r.prompt_length + 1)
end

terra request.check_pool(num_pages_needed : int32, limits : &Limits, message : &C.glm_message) : int32
  status.fail_if(message, num_pages_needed > limits.num_pages, C.GLM_OUT_OF_MEMORY, "the request may need %d KV cache pages of %d tokens, but the pool has only %d", num_pages_needed, limits.page_size, limits.num_pages)
  return C.GLM_OK
end

local terra check_lengths(r : &C.engine_request, limits : &Limits, message : &C.glm_message) : int32
  status.try(request.check_prompt(r.prompt, r.prompt_length, limits, message))
  refuse(message, r.max_tokens < 0, "max_tokens is %d; expected 0 or more", r.max_tokens)
  refuse(message, r.min_tokens < 0 or r.min_tokens > r.max_tokens, "min_tokens is %d; expected 0 to max_tokens (%d)", r.min_tokens, r.max_tokens)
  refuse(message, r.deadline_ns < 0, "deadline_ns is %lld; expected 0 (none) or a CLOCK_MONOTONIC time", r.deadline_ns)
  refuse(message, r.logits_capacity < 0, "logits_capacity is %d; expected 0 or more", r.logits_capacity)
  refuse(message, r.logits_capacity > 0 and r.logits == nil, "logits is null; expected a buffer for %d rows of %d values", r.logits_capacity, limits.vocab_size)
  refuse(message, r.draft_logits ~= nil and not limits.drafts_with_layer, "draft_logits is not null, but the engine has no prediction layer; expected null without speculate mtp or auto")
  var num_outputs = request.most_outputs(r, limits)
  var num_tokens = r.prompt_length + terralib.select(num_outputs > 0, num_outputs - 1, 0)
  return request.check_pool((num_tokens + limits.page_size - 1) / limits.page_size, limits, message)
end

terra request.check(r : &C.engine_request, limits : &Limits, message : &C.glm_message) : int32
  refuse(message, r == nil, "the request is null")
  refuse(message, r.struct_size ~= sizeof(C.engine_request), "engine_request.struct_size is %u; expected %u", r.struct_size, [uint32](sizeof(C.engine_request)))
  status.try(check_lengths(r, limits, message))
  status.try(request.check_sampling(&r.sampling, message))
  refuse(message, r.num_prompt_logprobs < -1 or r.num_prompt_logprobs > C.ENGINE_MAX_LOGPROBS, "num_prompt_logprobs is %d; expected -1 (none) to %d", r.num_prompt_logprobs, C.ENGINE_MAX_LOGPROBS)
  refuse(message, r.num_stop_tokens < 0, "num_stop_tokens is %d; expected 0 or more", r.num_stop_tokens)
  status.try(request.check_tokens("stop_tokens", r.stop_tokens, r.num_stop_tokens, limits.vocab_size, message))
  status.try(check_sequences("stop_sequence", r.stop_sequence_begin, r.stop_sequence_tokens, r.num_stop_sequences, most_stop_sequences, limits, message))
  refuse(message, r.num_draft_tokens < 0, "num_draft_tokens is %d; expected 0 or more", r.num_draft_tokens)
  status.try(request.check_tokens("draft_tokens", r.draft_tokens, r.num_draft_tokens, limits.vocab_size, message))
  refuse(message, r.num_prediction_tokens < 0, "num_prediction_tokens is %d; expected 0 or more", r.num_prediction_tokens)
  status.try(request.check_tokens("prediction_tokens", r.prediction_tokens, r.num_prediction_tokens, limits.vocab_size, message))
  status.try(check_rules(r, limits, message))
  return check_biases(r, limits, message)
end

local terra add_stop_token(item : &Sequence, token : int32) : bool
  return item:is_stop_token(token) or item.stop_tokens:push(token)
end

local terra copy_stop_tokens(item : &Sequence, r : &C.engine_request, model : &ModelConfig) : bool
  for i = 0, r.num_stop_tokens do
    if not add_stop_token(item, r.stop_tokens[i]) then
      return false
    end
  end
  if r.ignore_eos ~= 0 then
    return true
  end
  for i = 0, model.num_eos_tokens do
    if not add_stop_token(item, model.eos_tokens[i]) then
      return false
    end
  end
  return true
end

local terra copy_stop_sequences(item : &Sequence, r : &C.engine_request) : bool
  if r.num_stop_sequences == 0 then
    return true
  end
  var num_tokens = r.stop_sequence_begin[r.num_stop_sequences]
  return item.stop_sequence_begin:append(r.stop_sequence_begin, r.num_stop_sequences + 1) and item.stop_sequence_tokens:append(r.stop_sequence_tokens, num_tokens)
end

local terra copy_lookup(item : &Sequence, r : &C.engine_request, limits : &Limits) : bool
  var num_predicted = smaller(r.num_prediction_tokens, limits.max_seq)
  if not item.lookup:init([int64](num_predicted) + r.prompt_length + item.max_outputs) then
    return false
  end
  item.lookup:predict(r.prediction_tokens, num_predicted)
  item.lookup:read(r.prompt, r.prompt_length)
  return true
end

local terra copy_drafts(item : &Sequence, r : &C.engine_request, limits : &Limits) : bool
  if not item.drafts:reserve(item.max_outputs) then
    return false
  end
  item.uses_layer = r.num_draft_tokens == 0 and limits.drafts_with_layer
  if r.num_draft_tokens == 0 and limits.looks_up then
    return copy_lookup(item, r, limits)
  end
  return item.drafts:append(r.draft_tokens, smaller(r.num_draft_tokens, item.max_outputs))
end

local terra copy_biases(item : &Sequence, r : &C.engine_request) : bool
  for i = 0, r.num_biases do
    if not item.biases:push(Bias { r.bias_tokens[i], r.bias_values[i] }) then
      return false
    end
  end
  return item.min_outputs == 0 or item:make_early_biases()
end

local terra copy_mask(item : &Sequence, r : &C.engine_request, limits : &Limits) : bool
  if r.mask == nil then
    return true
  elseif not item.masks:init(limits.vocab_size, limits.masks_per_request) then
    return false
  end
  var first = C.engine_mask { request_id = 0, words = r.mask, index = 0, num_drafts = 0, draft_token = -1 }
  item.masks:give(&first, nil, 0, nil)
  item.masks:take(nil, 0, 0)
  return true
end

terra request.reserve(item : &Sequence, num_tokens : int32, page_size : int32) : bool
  var num_pages = (num_tokens + page_size - 1) / page_size + 1
  return item.tokens:reserve(num_tokens + 1) and item.pages:reserve(num_pages) and item.saved_pages:reserve(num_pages)
end

terra request.set_prompt(item : &Sequence, tokens : &int32, num_tokens : int32)
  C.memcpy(item.tokens.data, tokens, num_tokens * sizeof(int32))
  item.tokens.size = num_tokens
  item.prompt_length = num_tokens
end

local terra copy_all(item : &Sequence, r : &C.engine_request, model : &ModelConfig, limits : &Limits) : bool
  item.max_outputs = request.most_outputs(r, limits)
  item.min_outputs = r.min_tokens
  item.sampling = r.sampling
  item.num_prompt_logprobs = r.num_prompt_logprobs
  item.priority = r.priority
  item.deadline_ns = r.deadline_ns
  item.logits = r.logits
  item.draft_logits = r.draft_logits
  item.logits_capacity = r.logits_capacity
  if not request.reserve(item, r.prompt_length + item.max_outputs, limits.page_size) then
    return false
  end
  request.set_prompt(item, r.prompt, r.prompt_length)
  return copy_stop_tokens(item, r, model) and copy_stop_sequences(item, r) and copy_drafts(item, r, limits) and copy_biases(item, r) and copy_mask(item, r, limits) and item.rules:copy(r, limits.vocab_size)
end

terra request.new_sequence() : &Sequence
  var item = [&Sequence](C.malloc(sizeof(Sequence)))
  if item ~= nil then
    item:init()
  end
  return item
end

terra request.delete_sequence(item : &Sequence)
  item:free()
  C.free(item)
end

terra request.copy(r : &C.engine_request, model : &ModelConfig, limits : &Limits, result : &&Sequence, message : &C.glm_message) : int32
  @result = nil
  status.try(request.check(r, limits, message))
  var item = request.new_sequence()
  if item == nil or not copy_all(item, r, model, limits) then
    if item ~= nil then
      request.delete_sequence(item)
    end
    return status.fail(message, C.GLM_OUT_OF_MEMORY, "not enough host memory for a request of %d tokens", r.prompt_length)
  end
  var most = limits.max_biases
  if item.early_biases.size > most then
    var count = item.early_biases.size
    request.delete_sequence(item)
    return status.fail(message, C.GLM_INVALID_ARGUMENT, "min_tokens requires %lld logit biases to suppress the stop tokens, but a forward pass supports at most %d", count, most)
  end
  @result = item
  return C.GLM_OK
end

return request
