local abi = require("terra.abi")
local C = abi.C

local batch = {}

local struct StepShape {
  max_step_tokens : int32
  max_sequences : int32
  max_pages_per_sequence : int32
  max_logit_rows : int32
  max_biases : int32
  max_masks : int32
  vocab_size : int32
}
batch.StepShape = StepShape

local struct StepPlan {
  num_tokens : int32
  num_decode_tokens : int32
  num_segments : int32
  num_decode_segments : int32
  num_logit_rows : int32
  num_sample_rows : int32
  num_biases : int32
  num_masks : int32
  page_table_row_begin : int32
  page_table_row_end : int32
}

batch.arrays = {
  { name = "token_ids", type = int32, count = function(s) return `s.max_step_tokens end },
  { name = "positions", type = int32, count = function(s) return `s.max_step_tokens end },
  { name = "slots", type = int32, count = function(s) return `s.max_step_tokens end },
  { name = "query_begin", type = int32, count = function(s) return `s.max_sequences + 1 end },
  { name = "context_length", type = int32, count = function(s) return `s.max_sequences end },
  { name = "table_row", type = int32, count = function(s) return `s.max_sequences end },
  { name = "logit_rows", type = int32, count = function(s) return `s.max_logit_rows end },
  { name = "temperature", type = float, count = function(s) return `s.max_logit_rows end },
  { name = "top_p", type = float, count = function(s) return `s.max_logit_rows end },
  { name = "min_p", type = float, count = function(s) return `s.max_logit_rows end },
  { name = "top_k", type = int32, count = function(s) return `s.max_logit_rows end },
  { name = "repetition_penalty", type = float, count = function(s) return `s.max_logit_rows end },
  { name = "frequency_penalty", type = float, count = function(s) return `s.max_logit_rows end },
  { name = "presence_penalty", type = float, count = function(s) return `s.max_logit_rows end },
  { name = "seed", type = uint64, count = function(s) return `s.max_logit_rows end },
  { name = "position", type = int32, count = function(s) return `s.max_logit_rows end },
  { name = "count_row", type = int32, count = function(s) return `s.max_logit_rows end },
  { name = "mask_row", type = int32, count = function(s) return `s.max_logit_rows end },
  { name = "num_logprobs", type = int32, count = function(s) return `s.max_logit_rows end },
  { name = "bias_begin", type = int32, count = function(s) return `s.max_logit_rows + 1 end },
  { name = "bias_tokens", type = int32, count = function(s) return `s.max_biases end },
  { name = "bias_values", type = float, count = function(s) return `s.max_biases end },
  { name = "masks", type = uint32, count = function(s) return `s.max_masks * ((s.vocab_size + 31) / 32) end },
  { name = "page_table", type = int32, count = function(s) return `s.max_sequences * s.max_pages_per_sequence end },
}

batch.results = {
  { name = "token_ids", type = int32, count = function(s) return `s.max_logit_rows end },
  { name = "is_finite", type = int32, count = function(s) return `s.max_logit_rows end },
  { name = "logprob", type = float, count = function(s) return `s.max_logit_rows end },
  { name = "top_ids", type = int32, count = function(s) return `s.max_logit_rows * C.GLM_MAX_LOGPROBS end },
  { name = "top_logprobs", type = float, count = function(s) return `s.max_logit_rows * C.GLM_MAX_LOGPROBS end },
}

local block_alignment = 64

local function block_type(name, table)
  local Block = terralib.types.newstruct(name)
  Block.entries:insert { field = "data", type = &int8 }
  Block.entries:insert { field = "bytes", type = int64 }
  for _, array in ipairs(table) do
    Block.entries:insert { field = array.name, type = &array.type }
  end

  local shape = symbol(&StepShape, "shape")
  local offset = symbol(int64, "offset")
  local sizes = terralib.newlist()
  local binds = terralib.newlist()
  local self = symbol(&Block, "self")
  local data = symbol(&int8, "data")
  for _, array in ipairs(table) do
    local bytes = `([int64]([array.count(shape)]) * [terralib.sizeof(array.type)] + block_alignment - 1) / block_alignment * block_alignment
    sizes:insert(quote offset = offset + bytes end)
    binds:insert(quote
      [self].[array.name] = [&array.type]([data] + offset)
      offset = offset + bytes
    end)
  end

  Block.methods.bytes_for = terra([shape]) : int64
    var [offset] = 0
    [sizes]
    return offset
  end

  Block.methods.bind = terra([self], [shape], [data])
    var [offset] = 0
    [binds]
    [self].data = [data]
    [self].bytes = offset
  end

  return Block
end

batch.StepInputs = block_type("StepInputs", batch.arrays)
batch.StepOutputs = block_type("StepOutputs", batch.results)
StepPlan.entries:insert { field = "shape", type = StepShape }
StepPlan.entries:insert { field = "inputs", type = batch.StepInputs }
StepPlan.entries:insert { field = "outputs", type = batch.StepOutputs }
StepPlan.entries:insert { field = "logits", type = &float }
batch.StepPlan = StepPlan

return batch
