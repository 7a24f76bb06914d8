local abi = require("terra.base.abi")
local numbers = require("terra.base.numbers")
local C = abi.C

local most_looked_up = 16

local smaller = numbers.smaller(int32)

local terra mix(value : uint64) : uint64
  value = (value ^ (value >> 30)) * 0xBF58476D1CE4E5B9ULL
  value = (value ^ (value >> 27)) * 0x94D049BB133111EBULL
  return value ^ (value >> 31)
end

return function(Sequence)
  terra Sequence:awaits_its_drafts() : bool
    return self.num_in_flight > 1 and (self.rules:is_active() or self.masks:is_on() or self:num_outputs() < self.min_outputs)
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

  terra Sequence:most_drafts() : int32
    if self:awaits_its_mask() or self.num_in_flight > 0 and self.rules:is_active() then
      return 0
    end
    var first = self:num_planned_outputs()
    var most = smaller([int32](self.drafts.size) - first, self.max_outputs - first - 1)
    if self.masks:is_on() then
      return smaller(most, self.masks.num_taken - first - 1)
    end
    return most
  end

  terra Sequence:write_drafts()
    var first = self:num_planned_outputs()
    C.memcpy(self.tokens.data + self:length(), self.drafts.data + first, self.num_drafts * sizeof(int32))
  end

  terra Sequence:launch_drafts(num_drafts : int32)
    C.memcpy(&self.launched_drafts[0], self.drafts.data + self:num_outputs(), num_drafts * sizeof(int32))
  end

  terra Sequence:has_drawn_draft(place : int32) : bool
    return @self.tokens:last() == self.launched_drafts[place]
  end
end
