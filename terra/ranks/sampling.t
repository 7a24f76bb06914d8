local abi = require("terra.base.abi")
local batch = require("terra.scheduling.batch")
local rank = require("terra.ranks.rank")
local shares = require("terra.scheduling.shares")
local status = require("terra.base.status")
local C = abi.C

local sampling = {}

local Rank = rank.Rank
local RowShare = shares.RowShare
local StepPlan = batch.StepPlan

local outside_layers, run = rank.outside_layers, rank.run

local arrays = {
  "temperature", "top_p", "min_p", "top_k", "repetition_penalty", "frequency_penalty", "presence_penalty",
  "seed", "position", "row_offset", "count_row", "mask_row", "num_logprobs", "forced_token", "bias_begin", "bias_end",
}
local tables = { "bias_tokens", "bias_values", "masks" }
local results = { "token_ids", "is_finite", "logprob", "top_ids", "top_logprobs" }

terra Rank:share_of(plan : &StepPlan) : RowShare
  return shares.of(plan.num_logit_rows, plan.num_sample_rows, self.index, self.world_size)
end

terra sampling.arguments(self : &Rank, plan : &StepPlan, share : &RowShare, first : int32) : C.glm_sample_args
  var args : C.glm_sample_args
  C.memset(&args, 0, sizeof(C.glm_sample_args))
  args.num_rows = share.num_samples
  args.vocab_size = self.config.vocab_size
  args.num_count_rows = plan.shape.max_sequences
  args.num_masks = plan.num_masks
  args.num_biases = plan.num_biases
  args.logits = self.buffers.logits
  args.counts = self.buffers.counts
  args.input_ids = self.inputs.token_ids + share.begin
  escape
    for _, name in ipairs(arrays) do
      emit quote args.[name] = self.inputs.[name] + first + share.begin end
    end
    for _, name in ipairs(tables) do
      emit quote args.[name] = self.inputs.[name] end
    end
  end
  return args
end

terra sampling.sample(self : &Rank, plan : &StepPlan, share : &RowShare, message : &C.glm_message) : int32
  var args = sampling.arguments(self, plan, share, 0)
  escape
    for _, name in ipairs(results) do
      emit quote args.[name] = self.buffers.outputs.[name] end
    end
  end
  run(self, message, outside_layers, "sample", args)
  return C.GLM_OK
end

terra sampling.gather_ids(self : &Rank, share : &RowShare, layer : int32, ids : &int32, ids_of_ranks : &int32, message : &C.glm_message) : int32
  if self.world_size == 1 then
    return C.GLM_OK
  end
  var args : C.glm_all_gather_args
  args.num_rows = 1
  args.num_arrays = 1
  args.arrays[0] = C.glm_gathered { [int64](share.rows_each) * sizeof(int32), ids, ids_of_ranks }
  run(self, message, layer, "all_gather", args)
  return C.GLM_OK
end

terra sampling.ids_of_step(self : &Rank) : &int32
  return terralib.select(self.world_size > 1, self.buffers.ids_of_ranks, self.buffers.outputs.token_ids)
end

terra sampling.accept(self : &Rank, plan : &StepPlan, share : &RowShare, message : &C.glm_message) : int32
  status.try(sampling.gather_ids(self, share, outside_layers, self.buffers.outputs.token_ids, self.buffers.ids_of_ranks, message))
  var args : C.glm_accept_args
  args.num_rows = plan.num_sample_rows
  args.vocab_size = self.config.vocab_size
  args.num_table_rows = plan.shape.max_sequences
  args.row_offset = self.inputs.row_offset
  args.input_ids = self.inputs.token_ids
  args.sampled_ids = sampling.ids_of_step(self)
  args.acceptance_rate = self.acceptance_rate
  args.seed = self.inputs.seed
  args.position = self.inputs.position
  args.state_row = self.inputs.state_row
  args.count_row = self.inputs.count_row
  args.counts = self.buffers.counts
  args.states = self.buffers.states
  run(self, message, outside_layers, "accept", args)
  return C.GLM_OK
end

return sampling
