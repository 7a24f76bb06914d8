local numbers = require("terra.base.numbers")

local most_weight, settled_weight, stale_weight = 12, 5, 4
local shortest_interval = 16

local smaller, greater = numbers.smaller(int32), numbers.greater(int32)
local lighter = numbers.smaller(float)

local struct DraftEstimate {
  probability : float
  weight : float
  interval : int32
  longest_interval : int32
  tried_at : int32
}

terra DraftEstimate:init_for_text()
  @self = DraftEstimate { probability = 0.5, weight = 2, interval = 0, longest_interval = 64, tried_at = 0 }
end

terra DraftEstimate:init_for_layer()
  @self = DraftEstimate { probability = 0.8, weight = 4, interval = 0, longest_interval = 512, tried_at = 0 }
end

terra DraftEstimate:value(num_drafts : int32, price : float) : float
  var value, gain = 0.0f, self.probability
  for i = 0, num_drafts do
    if gain <= price then
      return value
    end
    value = value + gain - price
    gain = gain * self.probability
  end
  return value
end

terra DraftEstimate:is_due(position : int32) : bool
  return position - self.tried_at >= self.interval
end

terra DraftEstimate:is_uncertain(position : int32) : bool
  return self:is_due(position) and (self.weight < settled_weight or position - self.tried_at >= shortest_interval)
end

terra DraftEstimate:take(outcome : float)
  self.weight = lighter(self.weight + 1, most_weight)
  self.probability = self.probability + (outcome - self.probability) / self.weight
end

terra DraftEstimate:pace(position : int32, num_accepted : int32)
  if num_accepted > 0 then
    self.interval = 0
  elseif self:is_due(position) then
    self.interval = smaller(greater(2 * self.interval, shortest_interval), self.longest_interval)
  end
  self.tried_at = position
end

terra DraftEstimate:learn(position : int32, num_tried : int32, num_accepted : int32)
  if num_tried == 0 then
    return
  end
  if position - self.tried_at >= shortest_interval then
    self.weight = lighter(self.weight, stale_weight)
  end
  for i = 0, num_accepted do
    self:take(1)
  end
  if num_accepted < num_tried then
    self:take(0)
  end
  self:pace(position, num_accepted)
end

return { DraftEstimate = DraftEstimate }
