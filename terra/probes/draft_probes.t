local abi = require("terra.base.abi")
local costs = require("terra.scheduling.costs")
local draft_choice = require("terra.scheduling.draft_choice")
local draft_estimate = require("terra.scheduling.draft_estimate")
local C = abi.C

local never = 2147483647
local probes = {}

local struct DraftBatch {
  costs : costs.StepCosts
  choice : draft_choice.DraftChoice
  estimates : &draft_estimate.DraftEstimate
  num_sequences : int32
}

terra probes.draft_batch_open(num_sequences : int32, num_levels : int32, rows : &int32, ns : &int64, context_ns : double) : &opaque
  var self = [&DraftBatch](C.calloc(1, sizeof(DraftBatch)))
  self.costs = costs.unbounded()
  self.costs.decode_context_ns = context_ns
  for i = 0, num_levels do
    self.costs.rows:add(rows[i], ns[i])
  end
  self.num_sequences = num_sequences
  self.estimates = [&draft_estimate.DraftEstimate](C.calloc(num_sequences, sizeof(draft_estimate.DraftEstimate)))
  for i = 0, num_sequences do
    self.estimates[i]:init_for_text()
  end
  return self
end

terra probes.draft_batch_close(handle : &opaque)
  var self = [&DraftBatch](handle)
  self.choice:free()
  C.free(self.estimates)
  C.free(self)
end

terra probes.draft_batch_renew(handle : &opaque, index : int32)
  [&DraftBatch](handle).estimates[index]:init_for_text()
end

terra probes.draft_batch_believe(handle : &opaque, probabilities : &float)
  var self = [&DraftBatch](handle)
  for i = 0, self.num_sequences do
    self.estimates[i].probability = probabilities[i]
    self.estimates[i].interval = never
  end
end

terra probes.draft_batch_beliefs(handle : &opaque, probabilities : &float)
  var self = [&DraftBatch](handle)
  for i = 0, self.num_sequences do
    probabilities[i] = self.estimates[i].probability
  end
end

terra probes.draft_batch_choose(handle : &opaque, positions : &int32, contexts : &int32, spare : int32, num_drafts : &int32)
  var self = [&DraftBatch](handle)
  self.choice:begin(&self.costs, spare)
  for i = 0, self.num_sequences do
    self.choice:add(&self.estimates[i], contexts[i], self.estimates[i]:is_due(positions[i]), &num_drafts[i])
  end
  self.choice:choose()
end

terra probes.draft_batch_learn(handle : &opaque, positions : &int32, num_tried : &int32, num_accepted : &int32)
  var self = [&DraftBatch](handle)
  for i = 0, self.num_sequences do
    self.estimates[i]:learn(positions[i], num_tried[i], num_accepted[i])
  end
end

return { probes = probes }
