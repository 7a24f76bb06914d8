local abi = require("terra.base.abi")
local batch = require("terra.scheduling.batch")
local forward = require("terra.execution.forward")
local rank = require("terra.execution.rank")
local status = require("terra.base.status")
local transfers = require("terra.execution.transfers")
local C = abi.C

local Rank, call = rank.Rank, rank.call
local RankGroup = transfers.RankGroup
local StepPlan = batch.StepPlan

local graphs = { RankGroup = RankGroup }

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
  call(self, message, "capture of a decode step", "graph_begin")
  var code = forward.step(self, plan, message)
  if code ~= C.GLM_OK then
    self.backend.graph_end(self.device, nil)
    return code
  end
  call(self, message, "capture of a decode step", "graph_end", graph)
  return C.GLM_OK
end

local terra capture_job(self : &Rank, context : &opaque, message : &C.glm_message) : int32
  var shape = [&batch.StepShape](context)
  var most = terralib.select(shape.max_logit_rows < shape.max_sequences, shape.max_logit_rows, shape.max_sequences)
  most = terralib.select(shape.max_step_tokens < most, shape.max_step_tokens, most)
  self.graphs = [&&opaque](C.calloc(most, sizeof([&opaque])))
  if self.graphs == nil then
    return status.fail(message, C.GLM_OUT_OF_MEMORY, "no memory for the list of %d graphs", most)
  end
  self:use_inputs(true)
  for num_rows = 1, most + 1 do
    var plan = decode_plan(shape, num_rows)
    status.try(record(self, &plan, &self.graphs[num_rows - 1], message))
    self.num_graphs = num_rows
  end
  call(self, message, "capture of decode steps", "synchronise")
  return C.GLM_OK
end

local terra fill_warm_up(plan : &StepPlan)
  var token : int32 = 0
  var sampling : C.engine_sampling
  C.memset(&sampling, 0, sizeof(C.engine_sampling))
  sampling.top_p = 1
  sampling.repetition_penalty = 1
  sampling.num_logprobs = -1
  plan:begin()
  plan:add_decode_segment(0, 0, &token, warm_up_page_size)
  plan:add_sample_row(0, &sampling, 1, -1)
  plan.page_table_row_end = 1
end

local terra warm_up(self : &RankGroup, shape : &batch.StepShape, message : &C.glm_message) : int32
  var plan : StepPlan
  C.memset(&plan, 0, sizeof(StepPlan))
  plan.shape = @shape
  var input_bytes = batch.StepInputs.bytes_for(shape)
  var memory = [&int8](C.calloc(1, input_bytes + batch.StepOutputs.bytes_for(shape)))
  if memory == nil then
    return status.fail(message, C.GLM_OUT_OF_MEMORY, "no host memory for the plan of a step")
  end
  plan.inputs:bind(shape, memory)
  plan.outputs:bind(shape, memory + input_bytes)
  fill_warm_up(&plan)
  var code = self:step(&plan, message)
  C.free(memory)
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
