local abi = require("terra.base.abi")
local containers = require("terra.base.containers")
local numbers = require("terra.base.numbers")
local C = abi.C

local rules = {}

local last_opening = 1

local struct ThoughtProgress {
  num_thought : int32
  may_open : bool
}

local struct TokenRules {
  num_tokens : int32
  mask : &uint32
  allowed : &uint32
  only_allowed : bool
  bad_word_begin : containers.Vector(int32)
  bad_word_tokens : containers.Vector(int32)
  max_thought : int32
  begin_token : int32
  end_token : int32
  progress : ThoughtProgress
}
rules.TokenRules = TokenRules

terra TokenRules:free()
  C.free(self.mask)
  C.free(self.allowed)
  self.bad_word_begin:free()
  self.bad_word_tokens:free()
end

terra TokenRules:is_active() : bool
  return self.mask ~= nil
end

local terra new_words(self : &TokenRules, byte : int32) : &uint32
  var size = numbers.mask_words(self.num_tokens) * sizeof(uint32)
  var words = [&uint32](C.malloc(size))
  if words ~= nil then
    C.memset(words, byte, size)
  end
  return words
end

local terra set_bit(words : &uint32, token : int32)
  words[token / 32] = words[token / 32] or ([uint32](1) << [uint32](token % 32))
end

local terra clear_bit(words : &uint32, token : int32)
  words[token / 32] = words[token / 32] and not ([uint32](1) << [uint32](token % 32))
end

terra TokenRules:require_allowed(byte : int32) : bool
  if self.allowed == nil then
    self.allowed = new_words(self, byte)
  end
  return self.allowed ~= nil
end

terra TokenRules:copy_allowed(r : &C.engine_request) : bool
  self.only_allowed = r.num_allowed_tokens > 0
  if not self.only_allowed then
    return true
  elseif not self:require_allowed(0) then
    return false
  end
  for i = 0, r.num_allowed_tokens do
    set_bit(self.allowed, r.allowed_tokens[i])
  end
  return true
end

terra TokenRules:copy_bad_word(tokens : &int32, num_tokens : int32) : bool
  if num_tokens == 1 then
    if not self:require_allowed(0xFF) then
      return false
    end
    clear_bit(self.allowed, tokens[0])
    return true
  end
  return self.bad_word_tokens:append(tokens, num_tokens) and self.bad_word_begin:push([int32](self.bad_word_tokens.size))
end

terra TokenRules:copy_bad_words(r : &C.engine_request) : bool
  if not self.bad_word_begin:push(0) then
    return false
  end
  for i = 0, r.num_bad_words do
    var begin = r.bad_word_begin[i]
    if not self:copy_bad_word(r.bad_word_tokens + begin, r.bad_word_begin[i + 1] - begin) then
      return false
    end
  end
  return true
end

terra TokenRules:copy(r : &C.engine_request, vocab_size : int32) : bool
  if r.num_allowed_tokens == 0 and r.num_bad_words == 0 and r.max_thought_tokens < 0 then
    return true
  end
  self.num_tokens = vocab_size
  self.max_thought = r.max_thought_tokens
  self.progress.num_thought = terralib.select(r.thought_is_open ~= 0, 0, -1)
  self.begin_token = r.thought_begin_token
  self.end_token = r.thought_end_token
  self.progress.may_open = r.thought_is_open == 0
  self.mask = new_words(self, 0)
  return self.mask ~= nil and self:copy_allowed(r) and self:copy_bad_words(r)
end

terra TokenRules:take(token : int32, index : int32)
  if token == self.end_token then
    self.progress.num_thought = -1
    self.progress.may_open = false
  elseif self.progress.num_thought >= 0 then
    self.progress.num_thought = self.progress.num_thought + 1
  elseif self.progress.may_open and token == self.begin_token then
    self.progress.num_thought = 0
    self.progress.may_open = false
  elseif index >= last_opening then
    self.progress.may_open = false
  end
end

terra TokenRules:ends_thought() : bool
  return self.max_thought >= 0 and self.progress.num_thought >= self.max_thought
end

terra TokenRules:needs_last_token() : bool
  if self.bad_word_begin.size > 1 then
    return true
  elseif self.max_thought < 0 then
    return false
  end
  return self.progress.num_thought >= 0 and self.progress.num_thought + 1 >= self.max_thought or self.progress.may_open and self.max_thought == 0
end

terra TokenRules:forbid_bad_words(outputs : &int32, num_outputs : int32) : bool
  var has_forbidden = false
  for i = 0, self.bad_word_begin.size - 1 do
    var word = self.bad_word_tokens.data + self.bad_word_begin.data[i]
    var length = self.bad_word_begin.data[i + 1] - self.bad_word_begin.data[i] - 1
    if length <= num_outputs and C.memcmp(outputs + (num_outputs - length), word, length * sizeof(int32)) == 0 then
      clear_bit(self.mask, word[length])
      has_forbidden = true
    end
  end
  return has_forbidden
end

terra TokenRules:next_mask(given : &uint32, outputs : &int32, num_outputs : int32) : &uint32
  var size = numbers.mask_words(self.num_tokens) * sizeof(uint32)
  if self:ends_thought() then
    C.memset(self.mask, 0, size)
    set_bit(self.mask, self.end_token)
    return self.mask
  end
  if self.allowed == nil and given == nil and self.bad_word_begin.size <= 1 then
    return nil
  end
  C.memset(self.mask, 0xFF, size)
  if self.allowed ~= nil then
    C.memcpy(self.mask, self.allowed, size)
  end
  if given ~= nil then
    for i = 0, numbers.mask_words(self.num_tokens) do
      self.mask[i] = self.mask[i] and given[i]
    end
  end
  var has_forbidden = self:forbid_bad_words(outputs, num_outputs)
  return terralib.select(has_forbidden or self.allowed ~= nil or given ~= nil, self.mask, nil)
end

return rules
