local abi = require("terra.base.abi")
local draft_estimate = require("terra.scheduling.draft_estimate")
local numbers = require("terra.base.numbers")
local C = abi.C

local most_looked_up = 16

local DraftEstimate = draft_estimate.DraftEstimate

local smaller, greater = numbers.smaller(int32), numbers.greater(int32)

local terra mix(value : uint64) : uint64
  value = (value ^ (value >> 30)) * 0xBF58476D1CE4E5B9ULL
  value = (value ^ (value >> 27)) * 0x94D049BB133111EBULL
  return value ^ (value >> 31)
end

return function(Sequence)
  terra Sequence:has_drafts_behind_its_token() : bool
    return self.num_in_flight > 0 and self.masks:is_on() and self.masks.num_taken > self:num_planned_outputs() + 1
  end

  terra Sequence:may_reach_min_outputs() : bool
    var least, most = self:num_outputs() + 1, self:num_planned_outputs() + C.ENGINE_MAX_DRAFT_TOKENS
    return least < self.min_outputs and self.min_outputs <= most
  end

  terra Sequence:awaits_its_drafts() : bool
    var needs_its_masks = self.masks:is_on() and not self.launched_of_layer
    return self.num_in_flight > 1 and (self.rules:is_active() or needs_its_masks or self:may_reach_min_outputs())
  end

  terra Sequence:give_mask(mask : &C.engine_mask, now_ns : int64, message : &C.glm_message) : int32
    var given = @mask
    if mask.draft_token < 0 and mask.index > 0 and mask.index <= self.drafts.size then
      given.draft_token = self.drafts.data[mask.index - 1]
    end
    return self.masks:give(&given, self:outputs(), now_ns, message)
  end

  terra Sequence:draft_at(index : int32) : int32
    if self.masks:is_on() then
      return self.masks:draft_before(index + 1)
    end
    return self.drafts.data[index]
  end

  terra Sequence:looks_up_its_drafts() : bool
    return self.lookup:is_on() and not self.masks:is_on()
  end

  terra Sequence:most_looked_up() : int32
    return smaller(most_looked_up, self.max_outputs - self:num_outputs())
  end

  terra Sequence:look_up_drafts()
    var first = self:num_outputs()
    self.drafts.size = first + self.lookup:continuation(self.drafts.data + first, self:most_looked_up())
  end

  terra Sequence:invent_drafts(vocab_size : int32)
    var finish = self:num_outputs() + self:most_looked_up()
    for index = [int32](self.drafts.size), finish do
      self.drafts.data[index] = mix(mix(self.id) + index) % [uint64](vocab_size)
    end
    self.drafts.size = finish
  end

  terra Sequence:num_wanted_drafts() : int32
    if self.num_in_flight > 0 and self.rules:is_active() then
      return 0
    end
    return greater(self.max_outputs - 1 - self:num_planned_outputs(), 0)
  end

  terra Sequence:num_text_drafts() : int32
    if self:awaits_its_mask() then
      return 0
    end
    var known = [int32](self.drafts.size)
    if self.masks:is_on() then
      known = self.masks.num_taken - 1
    end
    return greater(smaller(known - self:num_planned_outputs(), self:num_wanted_drafts()), 0)
  end

  terra Sequence:has_layer_draft() : bool
    if self.num_in_flight > 0 then
      return self.draft_row >= 0
    end
    return self.layer_draft >= 0
  end

  terra Sequence:num_layer_drafts() : int32
    return terralib.select(self:has_layer_draft() and not self:guides_with_lookup(), smaller(self:num_wanted_drafts(), 1), 0)
  end

  terra Sequence:guides_with_lookup() : bool
    return self.masks:is_on() and self.lookup:is_on() and self.lookup.source >= 0
  end

  terra Sequence:awaits_mask_behind_draft() : bool
    return self.masks:is_on() and self.is_of_layer and self.num_drafts > 0
  end

  terra Sequence:has_mask_behind_draft() : bool
    var next = self:num_outputs() + 1
    return self.masks.num_taken > next and self.masks:draft_before(next) == self.launched_drafts[0]
  end

  terra Sequence:wants_draft_behind_its_token() : bool
    return self.uses_layer and self:num_planned_outputs() + 2 < self.max_outputs
  end

  terra Sequence:draft_of(is_of_layer : bool, index : int32) : int32
    if is_of_layer then
      return greater(self.layer_draft, 0)
    end
    return self:draft_at(index)
  end

  terra Sequence:write_drafts()
    var first = self:num_planned_outputs()
    for i = 0, self.num_drafts do
      self.tokens.data[self:length() + i] = self:draft_of(self.is_of_layer, first + i)
    end
  end

  terra Sequence:launch_drafts(num_drafts : int32, is_of_layer : bool)
    for i = 0, num_drafts do
      self.launched_drafts[i] = self:draft_of(is_of_layer, self:num_outputs() + i)
    end
    self.launched_of_layer = is_of_layer and num_drafts > 0
  end

  terra Sequence:estimate_of(is_of_layer : bool) : &DraftEstimate
    return terralib.select(is_of_layer, &self.layer_estimate, &self.text_estimate)
  end

  terra Sequence:has_drawn_draft(place : int32) : bool
    return @self.tokens:last() == self.launched_drafts[place]
  end
end
