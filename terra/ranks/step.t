local abi = require("terra.base.abi")
local batch = require("terra.scheduling.batch")
local buffers = require("terra.plan.buffers")
local config = require("terra.checkpoint.config")
local dtypes = require("terra.base.dtypes")
local layout = require("terra.model.layout")
local rank = require("terra.ranks.rank")
local shares = require("terra.scheduling.shares")
local status = require("terra.base.status")
local C = abi.C

local step = {}

local Rank = rank.Rank
local RowShare = shares.RowShare
local StepPlan = batch.StepPlan

local outside_layers, run, run_as, try = rank.outside_layers, rank.run, rank.run_as, status.try

local struct Step {
  rank : &Rank
  plan : &StepPlan
  message : &C.glm_message
  config : &config.ModelConfig
  model : &layout.ModelWeights
  buffers : &buffers.RankBuffers
  inputs : &batch.StepInputs
  cache : &C.glm_kv_cache
  layer : int32
  num_rows : int32
  is_scattered : bool
  segments : C.glm_segments
  residual : &opaque
  query : &opaque
  attended : &opaque
  num_logit_rows : int32
  logit_rows : &int32
}

local function fill(Struct, fields)
  local stated = {}
  for _, entry in ipairs(fields:gettype().entries) do
    stated[entry.field] = true
  end
  for _, entry in ipairs(Struct:getentries()) do
    assert(stated[entry.field], ("%s: the field %s is not stated"):format(tostring(Struct), entry.field))
  end
  return `Struct(fields)
end

local all_fields = macro(function(Struct, fields)
  return fill(Struct:astype(), fields)
end)

Step.methods.run_as = macro(function(self, label, operation, fields)
  local Arguments = C["glm_" .. operation:asvalue() .. "_args"]
  return quote
    var arguments : Arguments = [fill(Arguments, fields)]
    run_as(self.rank, self.message, self.layer, label, operation, arguments)
  end
end)

Step.methods.run = macro(function(self, operation, fields)
  return quote self:run_as(operation, operation, fields) end
end)

local terra is_scattered(self : &Rank, plan : &StepPlan) : bool
  var num_rows = [int32](shares.rows_each(plan.num_tokens, self.world_size)) * self.world_size
  return self.world_size > 1 and self.fewest_scattered_rows > 0 and plan.num_tokens >= self.fewest_scattered_rows
    and plan.num_tokens >= self.world_size and plan.num_logit_rows < plan.num_tokens and num_rows <= plan.shape.max_step_tokens
end

local terra segments_of(plan : &StepPlan, inputs : &batch.StepInputs) : C.glm_segments
  return all_fields(C.glm_segments, {
    num_segments = plan.num_segments,
    num_decode_segments = plan.num_decode_segments,
    query_begin = inputs.query_begin,
    context_length = inputs.context_length,
    table_row = inputs.table_row,
    page_table = inputs.page_table,
    page_table_stride = plan.shape.max_pages_per_sequence,
    num_table_rows = plan.shape.max_sequences,
    rows_per_sequence = plan.shape.rows_per_sequence,
  })
end

local terra step_of(self : &Rank, plan : &StepPlan, message : &C.glm_message) : Step
  return Step {
    rank = self,
    plan = plan,
    message = message,
    config = self.config,
    model = &self.weights,
    buffers = &self.buffers,
    inputs = self.inputs,
    cache = &self.cache,
    layer = outside_layers,
    num_rows = plan.num_tokens,
    is_scattered = is_scattered(self, plan),
    segments = segments_of(plan, self.inputs),
    residual = self.buffers.residual,
    query = self.buffers.query,
    attended = self.buffers.attended,
    num_logit_rows = plan.num_logit_rows,
    logit_rows = self.inputs.logit_rows,
  }
end

terra Step:part_of_sum() : int32
  return terralib.select(self.is_scattered, C.GLM_PART_OF_SCATTERED_SUM, C.GLM_PART_OF_SUM)
end

terra Step:num_own_rows() : int32
  if not self.is_scattered then
    return self.num_rows
  end
  return (self.num_rows - self.rank.index + self.rank.world_size - 1) / self.rank.world_size
end

terra Step:first_own_row() : int32
  return terralib.select(self.is_scattered, self.rank.index, 0)
end

terra Step:stride_of_own_rows() : int32
  return terralib.select(self.is_scattered, self.rank.world_size, 1)
end

terra Step:hidden_row_bytes() : int64
  return [int64](self.config.hidden_size) * dtypes.bytes(self.rank.activation_dtype)
end

local terra add_array(args : &C.glm_all_gather_args, row_bytes : int64, share : &opaque, output : &opaque)
  args.arrays[args.num_arrays] = C.glm_gathered { row_bytes, share, output }
  args.num_arrays = args.num_arrays + 1
end

terra Step:arrays_of_ranks() : C.glm_all_gather_args
  var args : C.glm_all_gather_args
  args.num_rows = shares.rows_each(self.num_rows, self.rank.world_size)
  args.num_arrays = 0
  return args
end

terra Step:gather_shares(num_choices : int32, wants_plain : bool) : int32
  if not self.is_scattered then
    return C.GLM_OK
  end
  var b, args = self.buffers, self:arrays_of_ranks()
  if wants_plain then
    add_array(&args, self:hidden_row_bytes(), b.plain_share, b.plain)
  end
  if num_choices > 0 then
    add_array(&args, num_choices * sizeof(int32), b.expert_ids_share, b.expert_ids)
    add_array(&args, num_choices * sizeof(float), b.expert_weights_share, b.expert_weights)
  end
  run(self.rank, self.message, self.layer, "all_gather", args)
  return C.GLM_OK
end

terra Step:meet() : int32
  return self:gather_shares(0, false)
end

terra Step:select_rows(all_rows : &C.glm_matrix, num_rows : int32, rows : &int32, output : &opaque) : int32
  self:run_as("select rows", "embed", { num_tokens = num_rows, id_stride = 1, token_ids = rows, table = all_rows, residual = output })
  return C.GLM_OK
end

terra Step:gather_residual() : int32
  var args = self:arrays_of_ranks()
  add_array(&args, self:hidden_row_bytes(), self.residual, self.buffers.delta)
  run(self.rank, self.message, self.layer, "all_gather", args)
  return C.GLM_OK
end

terra Step:keep_logit_rows() : int32
  var b = self.buffers
  var residual_rows = &self.rank.residual_rows
  if self.is_scattered then
    try(self:gather_residual())
    residual_rows = &self.rank.gathered_rows
  end
  try(self:select_rows(residual_rows, self.num_logit_rows, self.logit_rows, b.kept_residual))
  try(self:select_rows(&self.rank.attended_rows, self.num_logit_rows, self.logit_rows, b.query))
  self.num_rows = self.num_logit_rows
  self.is_scattered = false
  self.residual, self.attended, self.logit_rows = b.kept_residual, b.query, nil
  return C.GLM_OK
end

local terra most_rows_of_a_sequence(plan : &StepPlan) : int32
  return terralib.select(plan.num_tokens > plan.num_decode_tokens, plan.num_tokens, plan.shape.rows_per_sequence)
end

terra Step:keep_draft_rows() : int32
  var b, rank, plan = self.buffers, self.rank, self.plan
  try(self:select_rows(&rank.residual_rows, plan.num_draft_rows, b.drafting_rows, b.kept_residual))
  try(self:select_rows(&rank.query_rows, plan.num_draft_rows, b.drafting_rows, b.attended))
  self.num_rows = plan.num_draft_rows
  self.residual, self.query, self.attended = b.kept_residual, b.attended, b.query
  self.segments.num_segments, self.segments.num_decode_segments = plan.num_draft_rows, plan.num_draft_rows
  self.segments.query_begin = b.draft_query_begin
  self.segments.context_length, self.segments.table_row = b.draft_context_length, b.draft_table_row
  self.segments.rows_per_sequence = most_rows_of_a_sequence(plan)
  return C.GLM_OK
end

terra Step:share_of_logits() : RowShare
  return shares.of(self.num_logit_rows, self.num_logit_rows, self.rank.index, self.rank.world_size)
end

terra Step:exchange_logits() : int32
  self:run("all_to_all", {
    num_rows = self.num_logit_rows, row_bytes = [int64](self.model.local_vocab_size) * sizeof(float),
    input = self.buffers.local_logits, output = self.buffers.logits,
  })
  return C.GLM_OK
end

require("terra.model.blocks")(Step)

local step_inputs = {
  "page_table", "source_rows", "table_row", "row_offset", "position_limit",
  "token_ids", "positions", "slots", "context_length", "position",
}

local terra begin_step(self : &Rank, plan : &StepPlan, message : &C.glm_message) : int32
  var args : C.glm_begin_step_args
  args.num_rows = plan.num_decode_tokens
  args.num_table_rows = plan.shape.max_sequences
  args.page_size = self.cache.page_size
  args.page_table_stride = plan.shape.max_pages_per_sequence
  args.states = self.buffers.states
  args.continuation = nil
  args.continuation_stride = plan.shape.rows_per_sequence
  if plan.shape.rows_per_sequence > 1 then
    args.continuation = self.inputs.continuation
  end
  escape
    for _, name in ipairs(step_inputs) do
      emit quote args.[name] = self.inputs.[name] end
    end
  end
  run(self, message, outside_layers, "begin_step", args)
  return C.GLM_OK
end

terra step.forward(self : &Rank, plan : &StepPlan, message : &C.glm_message) : int32
  if plan.num_decode_tokens > 0 then
    try(begin_step(self, plan, message))
  end
  var begun = step_of(self, plan, message)
  return begun:forward()
end

terra step.predict(self : &Rank, plan : &StepPlan, message : &C.glm_message) : int32
  var begun = step_of(self, plan, message)
  begun.layer = self.config.num_layers
  begun.is_scattered = false
  begun.num_logit_rows, begun.logit_rows = plan.num_draft_rows, nil
  return begun:predict()
end

return step
