local abi = require("terra.base.abi")
local check = require("terra.base.check")
local numbers = require("terra.base.numbers")
local C = abi.C

local batch = {}

local smaller = numbers.smaller(int32)

local struct StepShape {
  max_step_tokens : int32
  max_sequences : int32
  rows_per_sequence : int32
  max_decode_rows : int32
  max_pages_per_sequence : int32
  max_logit_rows : int32
  max_draft_rows : int32
  max_biases : int32
  max_masks : int32
  vocab_size : int32
}
batch.StepShape = StepShape

terra StepShape:num_continuations(num_rows : int64) : int64
  return terralib.select(self.rows_per_sequence > 1, num_rows * self.rows_per_sequence, 0LL)
end

terra StepShape:drafts_with_layer() : bool
  return self.max_draft_rows > 0
end

terra StepShape:max_sample_rows() : int32
  return self.max_logit_rows + self.max_draft_rows
end

terra StepShape:mask_words() : int64
  return numbers.mask_words(self.vocab_size)
end

local struct StepPlan {
  num_tokens : int32
  num_decode_tokens : int32
  num_segments : int32
  num_decode_segments : int32
  num_logit_rows : int32
  num_sample_rows : int32
  num_draft_rows : int32
  num_biases : int32
  num_masks : int32
  num_awaited_masks : int32
  page_table_row_begin : int32
  page_table_row_end : int32
}

local function per_token(s) return `s.max_step_tokens end
local function per_segment(s) return `s.max_decode_rows end
local function per_row(s) return `s:max_sample_rows() end
local function per_draft(s) return `s.max_draft_rows end
local function tokens_used(p) return `p.num_tokens end
local function decode_used(p) return `p.num_decode_tokens end
local function segments_used(p) return `p.num_segments end
local function samples_used(p) return `p.num_logit_rows + p.num_draft_rows end
local function biases_used(p) return `p.num_biases end
local function mask_words(s) return `s:mask_words() end

batch.arrays = {
  { name = "token_ids", type = int32, count = per_token, used = tokens_used },
  { name = "positions", type = int32, count = per_token, used = tokens_used },
  { name = "slots", type = int32, count = per_token, used = tokens_used },
  { name = "source_rows", type = int32, count = per_segment, used = decode_used },
  { name = "position_limit", type = int32, count = per_segment, used = decode_used },
  { name = "continuation", type = int32, count = function(s) return `s:num_continuations(s.max_decode_rows) end, used = function(p) return `p.shape:num_continuations(p.num_decode_tokens) end },
  { name = "query_begin", type = int32, count = function(s) return `s.max_decode_rows + 1 end, used = function(p) return `p.num_segments + 1 end },
  { name = "context_length", type = int32, count = per_segment, used = segments_used },
  { name = "table_row", type = int32, count = per_segment, used = segments_used },
  { name = "next_ids", type = int32, count = function(s) return `terralib.select(s:drafts_with_layer(), s.max_step_tokens, 0) end, used = function(p) return `terralib.select(p.shape:drafts_with_layer(), p.num_tokens, 0) end },
  { name = "draft_rows", type = int32, count = per_draft, used = function(p) return `p.num_draft_rows end },
  { name = "logit_rows", type = int32, count = per_row, used = samples_used },
  { name = "temperature", type = float, count = per_row, used = samples_used },
  { name = "top_p", type = float, count = per_row, used = samples_used },
  { name = "min_p", type = float, count = per_row, used = samples_used },
  { name = "top_k", type = int32, count = per_row, used = samples_used },
  { name = "repetition_penalty", type = float, count = per_row, used = samples_used },
  { name = "frequency_penalty", type = float, count = per_row, used = samples_used },
  { name = "presence_penalty", type = float, count = per_row, used = samples_used },
  { name = "seed", type = uint64, count = per_row, used = samples_used },
  { name = "position", type = int32, count = per_row, used = samples_used },
  { name = "row_offset", type = int32, count = per_row, used = samples_used },
  { name = "state_row", type = int32, count = per_row, used = samples_used },
  { name = "count_row", type = int32, count = per_row, used = samples_used },
  { name = "mask_row", type = int32, count = per_row, used = samples_used },
  { name = "num_logprobs", type = int32, count = per_row, used = samples_used },
  { name = "forced_token", type = int32, count = per_row, used = samples_used },
  { name = "bias_begin", type = int32, count = per_row, used = samples_used },
  { name = "bias_end", type = int32, count = per_row, used = samples_used },
  { name = "bias_tokens", type = int32, count = function(s) return `s.max_biases end, used = biases_used },
  { name = "bias_values", type = float, count = function(s) return `s.max_biases end, used = biases_used },
  { name = "masks", type = uint32, count = function(s) return `s.max_masks * [mask_words(s)] end, used = function(p) return `p.num_masks * [mask_words(`p.shape)] end },
  { name = "page_table", type = int32, count = function(s) return `s.max_sequences * s.max_pages_per_sequence end },
}

batch.shared_arrays = { "bias_tokens", "bias_values", "masks", "page_table" }

batch.results = {
  { name = "token_ids", type = int32, count = function(s) return `s.max_logit_rows end },
  { name = "is_finite", type = int32, count = function(s) return `s.max_logit_rows end },
  { name = "draft_ids", type = int32, count = per_draft },
  { name = "logprob", type = float, count = function(s) return `s.max_logit_rows end },
  { name = "top_ids", type = int32, count = function(s) return `s.max_logit_rows * C.GLM_MAX_LOGPROBS end },
  { name = "top_logprobs", type = float, count = function(s) return `s.max_logit_rows * C.GLM_MAX_LOGPROBS end },
}

batch.results_of_rows = terralib.newlist(batch.results):filter(function(array) return array.name ~= "draft_ids" end)

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
StepPlan.entries:insert { field = "draft_logits", type = &float }
batch.StepPlan = StepPlan

terra StepShape:most_decode_rows() : int32
  return smaller(smaller(self.max_decode_rows, self.max_logit_rows), self.max_step_tokens)
end

terra StepShape:for_decode() : StepShape
  var shape = @self
  shape.max_step_tokens = self.max_decode_rows
  return shape
end

terra batch.StepInputs:bind_decode(shape : &StepShape, full : &batch.StepInputs)
  var narrow = shape:for_decode()
  self:bind(&narrow, full.data)
  escape
    for _, name in ipairs(batch.shared_arrays) do
      emit quote self.[name] = full.[name] end
    end
  end
end

terra batch.StepInputs:unbiased_bytes(shape : &StepShape) : int64
  var bytes = [&int8](self.bias_end + shape:max_sample_rows()) - self.data
  return (bytes + block_alignment - 1) / block_alignment * block_alignment
end

terra batch.StepInputs:bias_bytes() : int64
  return [&int8](self.masks) - [&int8](self.bias_tokens)
end

terra batch.StepInputs:row_control_bytes() : int64
  return [&int8](self.num_logprobs) - [&int8](self.state_row)
end

terra StepPlan:mask_bytes() : int64
  return self.num_masks * self.shape:mask_words() * sizeof(uint32)
end

terra batch.StepOutputs:short_bytes() : int64
  return [&int8](self.top_ids) - self.data
end

terra batch.StepInputs:pack(plan : &StepPlan)
  escape
    for _, array in ipairs(batch.arrays) do
      if array.used then
        emit quote
          C.memcpy(self.[array.name], plan.inputs.[array.name], [int64]([array.used(plan)]) * [terralib.sizeof(array.type)])
        end
      end
    end
  end
end

terra batch.StepInputs:pack_masks(plan : &StepPlan)
  C.memcpy(self.state_row, plan.inputs.state_row, plan.num_sample_rows * sizeof(int32))
  C.memcpy(self.count_row, plan.inputs.count_row, plan.num_sample_rows * sizeof(int32))
  C.memcpy(self.mask_row, plan.inputs.mask_row, plan.num_sample_rows * sizeof(int32))
  C.memcpy(self.masks, plan.inputs.masks, plan:mask_bytes())
end

terra StepPlan:is_decode() : bool
  return self.num_tokens > 0 and self.num_tokens == self.num_decode_tokens and self.num_sample_rows == self.num_tokens
end

terra StepPlan:wants_logprobs() : bool
  for i = 0, self.num_sample_rows do
    if self.inputs.num_logprobs[i] >= 0 then
      return true
    end
  end
  return false
end

terra StepPlan:begin()
  self.num_tokens = 0
  self.num_decode_tokens = 0
  self.num_segments = 0
  self.num_decode_segments = 0
  self.num_logit_rows = 0
  self.num_sample_rows = 0
  self.num_draft_rows = 0
  self.num_biases = 0
  self.num_masks = 0
  self.num_awaited_masks = 0
  self.page_table_row_begin = 0
  self.page_table_row_end = 0
  self.logits = nil
  self.draft_logits = nil
  self.inputs.query_begin[0] = 0
end

terra StepShape:host_bytes() : int64
  return batch.StepInputs.bytes_for(self) + batch.StepOutputs.bytes_for(self)
end

terra StepPlan:bind(shape : &StepShape, memory : &int8)
  self.shape = @shape
  self.inputs:bind(shape, memory)
  self.outputs:bind(shape, memory + self.inputs.bytes)
  self:begin()
end

terra StepPlan:room() : int32
  return self.shape.max_step_tokens - self.num_tokens
end

terra StepPlan:page_table_of(table_row : int32) : &int32
  check.bounds(table_row, self.shape.max_sequences)
  return self.inputs.page_table + [int64](table_row) * self.shape.max_pages_per_sequence
end

terra StepPlan:follow_with(row : int32, next_id : int32)
  if self.shape:drafts_with_layer() then
    self.inputs.next_ids[row] = next_id
  end
end

terra StepPlan:follow_segment_with(next_id : int32)
  self:follow_with(self.num_tokens - 1, next_id)
end

terra StepPlan:add_segment(table_row : int32, position : int32, num_tokens : int32, tokens : &int32, page_size : int32)
  check.invariant(num_tokens > 0 and num_tokens <= self:room(), "a segment does not fit in its forward pass")
  check.bounds(self.num_segments, self.shape.max_decode_rows)
  var pages = self:page_table_of(table_row)
  for i = 0, num_tokens do
    var row, at = self.num_tokens + i, position + i
    check.bounds(at / page_size, self.shape.max_pages_per_sequence)
    self.inputs.token_ids[row] = tokens[at]
    self.inputs.positions[row] = at
    self.inputs.slots[row] = pages[at / page_size] * page_size + at % page_size
    self:follow_with(row, terralib.select(i < num_tokens - 1, tokens[at + 1], 0))
  end
  self.num_tokens = self.num_tokens + num_tokens
  self.inputs.context_length[self.num_segments] = position + num_tokens
  self.inputs.table_row[self.num_segments] = table_row
  self.num_segments = self.num_segments + 1
  self.inputs.query_begin[self.num_segments] = self.num_tokens
end

terra StepPlan:add_decode_segment(table_row : int32, position : int32, tokens : &int32, page_size : int32)
  check.invariant(self.num_decode_segments == self.num_segments, "a decode segment came after a prefill segment")
  self.inputs.source_rows[self.num_tokens] = -1
  self.inputs.position_limit[self.num_tokens] = position + 1
  self:add_segment(table_row, position, 1, tokens, page_size)
  self.num_decode_segments = self.num_decode_segments + 1
  self.num_decode_tokens = self.num_decode_tokens + 1
end

terra StepPlan:follow_row(source_row : int32)
  self.inputs.source_rows[self.num_tokens - 1] = source_row
  self.inputs.token_ids[self.num_tokens - 1] = 0
end

terra StepPlan:continue_with(tokens : &int32, num_tokens : int32)
  var row = [int64](self.num_tokens - 1)
  for i = 0, num_tokens do
    self.inputs.continuation[row * self.shape.rows_per_sequence + i] = tokens[i]
  end
end

terra StepPlan:continue_with_draft(num_tokens : int32)
  var row = [int64](self.num_tokens - 1)
  for i = 0, num_tokens do
    self.inputs.continuation[row * self.shape.rows_per_sequence + i] = -1
  end
end

terra StepPlan:add_logit_row(row : int32) : int32
  var index = self.num_logit_rows
  check.bounds(index, self.shape.max_logit_rows)
  self.inputs.logit_rows[index] = row
  self.inputs.row_offset[index] = 0
  self.num_logit_rows = index + 1
  return index
end

terra StepPlan:add_sample_row(row : int32, sampling : &C.engine_sampling, position : int32, table_row : int32, is_counted : bool) : int32
  check.invariant(self.num_sample_rows == self.num_logit_rows, "a sampled row came after an unsampled row")
  var index = self:add_logit_row(row)
  var inputs = &self.inputs
  self:follow_with(row, -1 - index)
  var takes_best = sampling.top_p == 0
  inputs.temperature[index] = terralib.select(takes_best, 0.0f, sampling.temperature)
  inputs.top_p[index] = terralib.select(takes_best, 1.0f, sampling.top_p)
  inputs.min_p[index] = sampling.min_p
  inputs.top_k[index] = sampling.top_k
  inputs.repetition_penalty[index] = sampling.repetition_penalty
  inputs.frequency_penalty[index] = sampling.frequency_penalty
  inputs.presence_penalty[index] = sampling.presence_penalty
  inputs.num_logprobs[index] = sampling.num_logprobs
  inputs.forced_token[index] = -1
  inputs.seed[index] = sampling.seed
  inputs.position[index] = position
  inputs.state_row[index] = table_row
  inputs.count_row[index] = terralib.select(is_counted, table_row, -1)
  inputs.mask_row[index] = -1
  inputs.bias_begin[index] = self.num_biases
  inputs.bias_end[index] = self.num_biases
  self.num_sample_rows = index + 1
  return index
end

terra batch.plain_sampling(num_logprobs : int32) : C.engine_sampling
  var sampling : C.engine_sampling
  C.memset(&sampling, 0, sizeof(C.engine_sampling))
  sampling.top_p = 1
  sampling.repetition_penalty = 1
  sampling.num_logprobs = num_logprobs
  return sampling
end

terra StepPlan:add_forced_row(row : int32, token : int32, num_logprobs : int32) : int32
  var sampling = batch.plain_sampling(num_logprobs)
  var index = self:add_sample_row(row, &sampling, 0, -1, false)
  self.inputs.forced_token[index] = token
  return index
end

terra StepPlan:add_draft_row(first : int32)
  check.bounds(self.num_draft_rows, self.shape.max_draft_rows)
  self.inputs.draft_rows[self.num_draft_rows] = first
  self.num_draft_rows = self.num_draft_rows + 1
end

local shared_controls = {
  "temperature", "top_p", "min_p", "top_k", "repetition_penalty", "frequency_penalty", "presence_penalty",
  "seed", "state_row", "count_row", "bias_begin", "bias_end",
}

terra StepPlan:first_draft_row() : int32
  return self.num_logit_rows
end

terra StepPlan:lacks_a_drafting_row() : bool
  for i = 0, self.num_draft_rows do
    if self.inputs.state_row[self.inputs.draft_rows[i]] < 0 then
      return true
    end
  end
  return false
end

terra StepPlan:write_draft_rows()
  var inputs = &self.inputs
  for i = 0, self.num_draft_rows do
    var source, target = inputs.draft_rows[i], self:first_draft_row() + i
    escape
      for _, name in ipairs(shared_controls) do
        emit quote inputs.[name][target] = inputs.[name][source] end
      end
    end
    inputs.position[target] = 0
    inputs.row_offset[target] = 0
    inputs.mask_row[target] = -1
    inputs.num_logprobs[target] = -1
    inputs.forced_token[target] = -1
  end
end

terra StepPlan:restrict(row : int32, mask : &uint32)
  if mask == nil then
    return
  end
  check.bounds(self.num_masks, self.shape.max_masks)
  var words = self.shape:mask_words()
  C.memcpy(self.inputs.masks + self.num_masks * words, mask, words * sizeof(uint32))
  self.inputs.mask_row[row] = self.num_masks
  self.num_masks = self.num_masks + 1
end

terra StepPlan:await_mask()
  self.num_awaited_masks = self.num_awaited_masks + 1
end

terra StepPlan:awaits_masks() : bool
  return self.num_awaited_masks > 0
end

terra StepPlan:leave_uncounted(row : int32)
  self.inputs.state_row[row] = -1
  self.inputs.count_row[row] = -1
end

terra StepPlan:repeat_biases(row : int32)
  self.inputs.bias_begin[row] = self.inputs.bias_begin[row - 1]
  self.inputs.bias_end[row] = self.inputs.bias_end[row - 1]
end

terra StepPlan:add_bias(token : int32, value : float)
  check.bounds(self.num_biases, self.shape.max_biases)
  self.inputs.bias_tokens[self.num_biases] = token
  self.inputs.bias_values[self.num_biases] = value
  self.num_biases = self.num_biases + 1
  self.inputs.bias_end[self.num_sample_rows - 1] = self.num_biases
end

return batch
