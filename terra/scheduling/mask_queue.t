local abi = require("terra.base.abi")
local containers = require("terra.base.containers")
local numbers = require("terra.base.numbers")
local status = require("terra.base.status")
local C = abi.C

local refuse = status.refuse
local smaller = numbers.smaller(int32)

local struct MaskQueue {
  num_tokens : int32
  words : containers.Vector(uint32)
  slots : containers.Vector(&uint32)
  drafts : containers.Vector(int32)
  num_known : int32
  num_given : int32
  num_taken : int32
  known_ns : int64
  given_ns : int64
  is_late : bool
}

terra MaskQueue:init(num_tokens : int32, depth : int32) : bool
  C.memset(self, 0, sizeof(MaskQueue))
  self.num_tokens = num_tokens
  return self.words:resize(depth * numbers.mask_words(self.num_tokens)) and self.slots:resize(depth) and self.drafts:resize(depth)
end

terra MaskQueue:free()
  self.words:free()
  self.slots:free()
  self.drafts:free()
end

terra MaskQueue:is_on() : bool
  return self.slots.size > 0
end

terra MaskQueue:at(index : int32) : &uint32
  if not self:is_on() then
    return nil
  end
  return self.slots.data[index % self.slots.size]
end

terra MaskQueue:lacks(index : int32) : bool
  return self:is_on() and self.num_taken <= index
end

terra MaskQueue:draft_before(index : int32) : int32
  return self.drafts.data[index % self.drafts.size]
end

terra MaskQueue:check(mask : &C.engine_mask, message : &C.glm_message) : int32
  var request_id, index, num_drafts, draft = mask.request_id, mask.index, mask.num_drafts, mask.draft_token
  refuse(message, index ~= self.num_given, "index is %d, but request %llu needs the mask for output token %d next", index, request_id, self.num_given)
  refuse(message, num_drafts < 0 or num_drafts >= self.slots.size, "num_drafts is %d; expected 0 to %lld (2 * max_draft_tokens)", num_drafts, self.slots.size - 1)
  refuse(message, index > self.num_known + num_drafts, "index is %d, but request %llu has sampled only %d tokens; set the mask for a token after the previous token has been sampled", index, request_id, self.num_known)
  refuse(message, num_drafts > 0 and (draft < 0 or draft >= self.num_tokens), "draft_token is %d; expected 0 to %d, or -1 if request %llu has a draft token at output position %d", draft, self.num_tokens - 1, request_id, index - 1)
  return C.GLM_OK
end

terra MaskQueue:is_outdated(mask : &C.engine_mask, outputs : &int32) : bool
  var index, num_sampled = mask.index, mask.index - mask.num_drafts
  if mask.num_drafts <= 0 or num_sampled < 0 or num_sampled >= self.num_known then
    return false
  end
  return index ~= self.num_given or (index == self.num_known and mask.draft_token ~= outputs[index - 1])
end

terra MaskQueue:keep(mask : &C.engine_mask)
  var slot, size = mask.index % self.slots.size, numbers.mask_words(self.num_tokens)
  self.drafts.data[slot] = mask.draft_token
  self.slots.data[slot] = nil
  if mask.words ~= nil then
    var copy = self.words.data + slot * size
    C.memcpy(copy, mask.words, size * sizeof(uint32))
    copy[size - 1] = copy[size - 1] and ([uint32](0xFFFFFFFFU) >> ((32 - self.num_tokens % 32) % 32))
    self.slots.data[slot] = copy
  end
end

terra MaskQueue:give(mask : &C.engine_mask, outputs : &int32, now_ns : int64, message : &C.glm_message) : int32
  refuse(message, not self:is_on(), "request %llu was submitted without a mask and does not accept one", mask.request_id)
  if self:is_outdated(mask, outputs) then
    return C.GLM_OK
  end
  status.try(self:check(mask, message))
  self:keep(mask)
  self.num_given = mask.index + 1
  self.given_ns = now_ns
  return C.GLM_OK
end

terra MaskQueue:num_valid(outputs : &int32, num_outputs : int32) : int32
  for index = self.num_known + 1, smaller(num_outputs + 1, self.num_given) do
    if self:draft_before(index) ~= outputs[index - 1] then
      return smaller(self.num_given, num_outputs)
    end
  end
  return self.num_given
end

terra MaskQueue:take(outputs : &int32, num_outputs : int32, patience_ns : int64)
  var num_valid = self:num_valid(outputs, num_outputs)
  if self.num_taken < num_valid and self.given_ns - self.known_ns <= patience_ns then
    self.is_late = false
  end
  self.num_taken = num_valid
end

terra MaskQueue:publish(outputs : &int32, num_outputs : int32, now_ns : int64)
  self.num_given = self:num_valid(outputs, num_outputs)
  self.num_taken = smaller(self.num_taken, self.num_given)
  if num_outputs > self.num_known then
    self.num_known = num_outputs
    self.known_ns = now_ns
  end
end

return { MaskQueue = MaskQueue }
