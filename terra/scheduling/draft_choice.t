local containers = require("terra.base.containers")
local costs = require("terra.scheduling.costs")
local draft_estimate = require("terra.scheduling.draft_estimate")

local DraftEstimate = draft_estimate.DraftEstimate

local struct Candidate {
  gain : float
  probability : float
  num_left : int32
  num_drafts : &int32
}

local CandidateList = containers.Vector(Candidate)

local struct DraftChoice {
  costs : &costs.StepCosts
  spare : int32
  num_rows : int32
  num_drafted : int32
  context : int64
  expected_tokens : double
  heap : CandidateList
  picked : containers.Vector(&int32)
}

terra DraftChoice:reserve(num_sequences : int64, num_rows : int64) : bool
  return self.heap:reserve(num_sequences) and self.picked:reserve(num_rows)
end

terra DraftChoice:free()
  self.heap:free()
  self.picked:free()
end

terra DraftChoice:begin(prices : &costs.StepCosts, spare : int32)
  self.costs = prices
  self.spare = spare
  self.num_rows, self.num_drafted, self.context, self.expected_tokens = 0, 0, 0, 0
  self.heap:clear()
  self.picked:clear()
end

terra DraftChoice:rise()
  var items, place = self.heap.data, self.heap.size - 1
  var moved = items[place]
  while place > 0 and items[(place - 1) / 2].gain < moved.gain do
    items[place] = items[(place - 1) / 2]
    place = (place - 1) / 2
  end
  items[place] = moved
end

terra DraftChoice:sink(moved : Candidate)
  var items, size, place = self.heap.data, self.heap.size, 0LL
  while true do
    var child = 2 * place + 1
    if child + 1 < size and items[child + 1].gain > items[child].gain then
      child = child + 1
    end
    if child >= size or items[child].gain <= moved.gain then
      items[place] = moved
      return
    end
    items[place] = items[child]
    place = child
  end
end

terra DraftChoice:draft(candidate : &Candidate)
  self.spare = self.spare - 1
  self.num_drafted = self.num_drafted + 1
  self.expected_tokens = self.expected_tokens + candidate.gain
  candidate.gain = candidate.gain * candidate.probability
  candidate.num_left = candidate.num_left - 1
end

terra DraftChoice:add(estimate : &DraftEstimate, context : int64, is_due : bool, num_drafts : &int32)
  var p = estimate.probability
  var candidate = Candidate { gain = p, probability = p, num_left = @num_drafts, num_drafts = num_drafts }
  @num_drafts = 0
  self.num_rows = self.num_rows + 1
  self.context = self.context + context
  self.expected_tokens = self.expected_tokens + 1
  if is_due and candidate.num_left > 0 and self.spare > 0 then
    self:draft(&candidate)
    @num_drafts = 1
  end
  if candidate.num_left > 0 then
    self.heap:push(candidate)
    self:rise()
  end
end

terra DraftChoice:pick()
  var top = self.heap.data[0]
  self:draft(&top)
  self.picked:push(top.num_drafts)
  if top.num_left == 0 then
    top = self.heap:pop()
  end
  if self.heap.size > 0 then
    self:sink(top)
  end
end

terra DraftChoice:expected_ns() : double
  var rows = self.num_rows + self.num_drafted
  return self.costs:of_step(rows, self.context * rows / self.num_rows, 0)
end

terra DraftChoice:choose()
  if self.heap.size == 0 then
    return
  end
  var best_tokens, best_ns, num_best = self.expected_tokens, self:expected_ns(), 0
  while self.heap.size > 0 and self.spare > 0 do
    self:pick()
    var ns = self:expected_ns()
    if self.expected_tokens * best_ns > best_tokens * ns then
      best_tokens, best_ns, num_best = self.expected_tokens, ns, self.picked.size
    end
  end
  for i = 0, num_best do
    @self.picked.data[i] = @self.picked.data[i] + 1
  end
end

return { DraftChoice = DraftChoice }
