local abi = require("terra.base.abi")
local batch = require("terra.scheduling.batch")
local step = require("terra.ranks.step")
local rank = require("terra.ranks.rank")
local ranks = require("terra.ranks.ranks")
local status = require("terra.base.status")
local trial = require("terra.ranks.trial")
local C = abi.C

local Rank, call = rank.Rank, rank.call
local RankGroup = ranks.RankGroup
local StepPlan = batch.StepPlan

local graphs = {}

local warm_up_page_size = 1

local terra decode_plan(shape : &batch.StepShape, num_rows : int32) : StepPlan
  var plan : StepPlan
  C.memset(&plan, 0, sizeof(StepPlan))
  plan.shape = @shape
  plan.num_tokens = num_rows
  plan.num_decode_tokens = num_rows
  plan.num_segments = num_rows
  plan.num_decode_segments = num_rows
  plan.num_logit_rows = num_rows
  return plan
end

local terra record(self : &Rank, plan : &StepPlan, graph : &&opaque, message : &C.glm_message) : int32
  call(self, message, "decode step capture", "graph_begin")
  var code = step.forward(self, plan, message)
  if code ~= C.GLM_OK then
    self.backend.graph_end(self.device, nil)
    return code
  end
  call(self, message, "decode step capture", "graph_end", graph)
  return C.GLM_OK
end

local terra capture_job(self : &Rank, context : &opaque, message : &C.glm_message) : int32
  var shape = [&batch.StepShape](context)
  var most = shape:most_decode_rows()
  self.graphs = [&&opaque](C.calloc(most, sizeof([&opaque])))
  status.fail_if(message, self.graphs == nil, C.GLM_OUT_OF_MEMORY, "not enough host memory for a list of %d graphs", most)
  self:use_inputs(true)
  for num_rows = 1, most + 1 do
    var plan = decode_plan(shape, num_rows)
    status.try(record(self, &plan, &self.graphs[num_rows - 1], message))
    self.num_graphs = num_rows
  end
  call(self, message, "decode step capture", "synchronise")
  return C.GLM_OK
end

local terra warm_up(self : &RankGroup, shape : &batch.StepShape, message : &C.glm_message) : int32
  var first : trial.Trial
  status.try(first:init(shape, warm_up_page_size, 1, message))
  first.draws_drafts = true
  first:begin()
  first:add_decode_rows(1, 0)
  first:finish()
  var code = self:step(&first.plan, message)
  first:free()
  return code
end

terra graphs.capture(self : &RankGroup, shape : &batch.StepShape, message : &C.glm_message) : int32
  status.try(warm_up(self, shape, message))
  return self:run(capture_job, shape, message)
end

terra graphs.free(self : &Rank)
  for i = 0, self.num_graphs do
    self.backend.graph_free(self.device, self.graphs[i])
  end
  C.free(self.graphs)
  self.graphs = nil
  self.num_graphs = 0
end

return graphs
