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
  return self.words:resize(depth * numbers.mask_words(self.num_tokens)) and self.slots:resize(depth)
end

terra MaskQueue:free()
  self.words:free()
  self.slots:free()
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

terra MaskQueue:give(mask : &C.engine_mask, now_ns : int64, message : &C.glm_message) : int32
  var request_id, index, words, num_drafts = mask.request_id, mask.index, mask.words, mask.num_drafts
  refuse(message, not self:is_on(), "request %llu was submitted without a mask and does not accept one", request_id)
  refuse(message, index ~= self.num_given, "index is %d, but request %llu needs the mask for output token %d next", index, request_id, self.num_given)
  refuse(message, num_drafts < 0 or num_drafts >= self.slots.size, "num_drafts is %d; expected 0 to %lld (max_draft_tokens)", num_drafts, self.slots.size - 1)
  refuse(message, num_drafts > 0 and index - num_drafts ~= self.num_known, "index %d comes after %d drafts, but request %llu has sampled %d tokens; set the masks of drafts before the next token has been sampled", index, num_drafts, request_id, self.num_known)
  refuse(message, index > self.num_known + num_drafts, "index is %d, but request %llu has sampled only %d tokens; set the mask for a token after the previous token has been sampled", index, request_id, self.num_known)
  var slot, size = index % self.slots.size, numbers.mask_words(self.num_tokens)
  self.slots.data[slot] = nil
  if words ~= nil then
    var copy = self.words.data + slot * size
    C.memcpy(copy, words, size * sizeof(uint32))
    copy[size - 1] = copy[size - 1] and ([uint32](0xFFFFFFFFU) >> ((32 - self.num_tokens % 32) % 32))
    self.slots.data[slot] = copy
  end
  self.num_given = index + 1
  self.given_ns = now_ns
  return C.GLM_OK
end

terra MaskQueue:rewind(num_outputs : int32)
  if num_outputs > self.num_known then
    self.num_given = smaller(self.num_given, num_outputs)
    self.num_taken = smaller(self.num_taken, num_outputs)
  end
end

terra MaskQueue:take(num_outputs : int32, patience_ns : int64)
  self:rewind(num_outputs)
  if self.num_taken < self.num_given and self.given_ns - self.known_ns <= patience_ns then
    self.is_late = false
  end
  self.num_taken = self.num_given
end

terra MaskQueue:publish(num_outputs : int32, now_ns : int64)
  self:rewind(num_outputs)
  if num_outputs > self.num_known then
    self.num_known = num_outputs
    self.known_ns = now_ns
  end
end

return { MaskQueue = MaskQueue }
