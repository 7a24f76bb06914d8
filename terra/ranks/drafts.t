local abi = require("terra.base.abi")
local batch = require("terra.scheduling.batch")
local rank = require("terra.ranks.rank")
local sampling = require("terra.ranks.sampling")
local shares = require("terra.scheduling.shares")
local C = abi.C

local drafts = {}

local Rank, run = rank.Rank, rank.run
local RowShare = shares.RowShare
local StepPlan = batch.StepPlan

terra Rank:share_of_drafts(plan : &StepPlan) : RowShare
  return shares.of(plan.num_draft_rows, plan.num_draft_rows, self.index, self.world_size)
end

terra drafts.begin(self : &Rank, plan : &StepPlan, message : &C.glm_message) : int32
  var b, inputs = &self.buffers, self.inputs
  var args : C.glm_begin_drafts_args
  args.num_tokens = plan.num_tokens
  args.num_sample_rows = plan.num_sample_rows
  args.num_drafts = plan.num_draft_rows
  args.num_table_rows = plan.shape.max_sequences
  args.sampled_ids = sampling.ids_of_step(self)
  args.states = b.states
  args.token_ids = b.joint_ids
  args.rows = b.drafting_rows
  args.table_row = b.draft_table_row
  args.context_length = b.draft_context_length
  args.position = inputs.position + plan:first_draft_row()
  escape
    for _, name in ipairs { "next_ids", "positions", "logit_rows", "state_row", "draft_rows" } do
      emit quote args.[name] = inputs.[name] end
    end
  end
  run(self, message, self.config.num_layers, "begin_drafts", args)
  return C.GLM_OK
end

terra drafts.draw(self : &Rank, plan : &StepPlan, share : &RowShare, message : &C.glm_message) : int32
  if share.num_samples > 0 then
    var args = sampling.arguments(self, plan, share, plan:first_draft_row())
    args.token_ids, args.is_finite = self.buffers.outputs.draft_ids, self.buffers.draft_is_finite
    run(self, message, self.config.num_layers, "sample", args)
  end
  return sampling.gather_ids(self, share, self.config.num_layers, self.buffers.outputs.draft_ids, self.buffers.drafts_of_ranks, message)
end

terra drafts.keep(self : &Rank, plan : &StepPlan, message : &C.glm_message) : int32
  var args : C.glm_keep_drafts_args
  args.num_drafts = plan.num_draft_rows
  args.num_table_rows = plan.shape.max_sequences
  args.state_row = self.inputs.state_row
  args.draft_rows = self.inputs.draft_rows
  args.draft_ids = terralib.select(self.world_size > 1, self.buffers.drafts_of_ranks, self.buffers.outputs.draft_ids)
  args.states = self.buffers.states
  run(self, message, self.config.num_layers, "keep_drafts", args)
  return C.GLM_OK
end

return drafts
