local abi = require("terra.base.abi")
local batch = require("terra.scheduling.batch")
local shares = require("terra.scheduling.shares")
local C = abi.C

local buffers = {}

local struct BufferShape {
  world_size : int64
  max_tokens : int64
  max_scattered_rows : int64
  activation_bytes : int64
  hidden_size : int64
  head_dim : int64
  num_heads : int64
  num_kv_heads : int64
  mlp_width : int64
  top_k : int64
  max_logit_rows : int64
  local_vocab_size : int64
  vocab_size : int64
  max_sequences : int64
  max_seq : int64
  rotary_dim : int64
  joint_width : int64
  joint_codes_width : int64
  workspace_bytes : int64
  step : batch.StepShape
}
buffers.BufferShape = BufferShape

local alignment = 256

local function activations(width)
  return function(s) return `s.max_tokens * [width(s)] * s.activation_bytes end
end

local function hidden(s) return `s.hidden_size end
local function query_width(s) return `s.num_heads * s.head_dim end
local function qkv_width(s) return `(s.num_heads + 2 * s.num_kv_heads) * s.head_dim end
local function mlp_width(s) return `s.mlp_width end
local function joint_width(s) return `s.joint_width end
local function gate_up_width(s) return `2 * s.mlp_width end
local function per_token(s) return `s.max_tokens * 4 end
local function per_choice(s) return `s.max_tokens * s.top_k * 4 end
local function rotations(s) return `s.max_seq * (s.rotary_dim / 2) * 4 end
local function kept_residual(s) return `s.max_logit_rows * s.hidden_size * s.activation_bytes end
local function own_rows(s) return `shares.rows_each(s.max_logit_rows, s.world_size) end
local function ids_of_ranks(s) return `terralib.select(s.world_size > 1, s.world_size * [own_rows(s)] * 4, [int64](0)) end
local function local_logits(s) return `terralib.select(s.local_vocab_size < s.vocab_size, s.max_logit_rows * s.local_vocab_size * 4, [int64](0)) end

local function per_draft(s) return `s.step.max_draft_rows * 4 end
local function draft_rows_begin(s) return `terralib.select(s.step:drafts_with_layer(), s.step.max_draft_rows * 4 + 4, 0) end
local function own_drafts(s) return `shares.rows_each(s.step.max_draft_rows, s.world_size) end
local function drafts_of_ranks(s) return `terralib.select(s.world_size > 1, s.world_size * [own_drafts(s)] * 4, [int64](0)) end

local function max_share(s) return `shares.rows_each(s.max_scattered_rows, s.world_size) end

buffers.table = {
  { name = "residual", type = &opaque, bytes = activations(hidden) },
  { name = "kept_residual", type = &opaque, bytes = kept_residual },
  { name = "delta", type = &opaque, bytes = activations(hidden) },
  { name = "plain", type = &opaque, bytes = activations(hidden) },
  { name = "codes", type = &uint8, bytes = function(s) return `s.max_tokens * s.hidden_size end },
  { name = "row_scale", type = &float, bytes = per_token },
  { name = "plain_share", type = &opaque, bytes = function(s) return `[max_share(s)] * s.hidden_size * s.activation_bytes end },
  { name = "qkv", type = &opaque, bytes = activations(qkv_width) },
  { name = "query", type = &opaque, bytes = activations(query_width) },
  { name = "attended", type = &opaque, bytes = activations(query_width) },
  { name = "attended_codes", type = &uint8, bytes = function(s) return `s.max_tokens * [query_width(s)] end },
  { name = "attended_scale", type = &float, bytes = per_token },
  { name = "gate_up", type = &opaque, bytes = activations(gate_up_width) },
  { name = "activated", type = &opaque, bytes = activations(mlp_width) },
  { name = "activated_codes", type = &uint8, bytes = function(s) return `s.max_tokens * s.mlp_width end },
  { name = "activated_scale", type = &float, bytes = per_token },
  { name = "shared", type = &opaque, bytes = activations(hidden) },
  { name = "expert_ids", type = &int32, bytes = per_choice },
  { name = "expert_weights", type = &float, bytes = per_choice },
  { name = "expert_ids_share", type = &int32, bytes = function(s) return `[max_share(s)] * s.top_k * 4 end },
  { name = "expert_weights_share", type = &float, bytes = function(s) return `[max_share(s)] * s.top_k * 4 end },
  { name = "joint_ids", type = &int32, bytes = function(s) return `terralib.select(s.joint_width > 0, s.max_tokens * 4, [int64](0)) end },
  { name = "joint_input", type = &opaque, bytes = activations(joint_width) },
  { name = "joint_codes", type = &uint8, bytes = function(s) return `s.max_tokens * s.joint_codes_width end },
  { name = "joint_scale", type = &float, bytes = function(s) return `terralib.select(s.joint_codes_width > 0, s.max_tokens * 4, [int64](0)) end },
  { name = "drafting_rows", type = &int32, bytes = per_draft },
  { name = "draft_table_row", type = &int32, bytes = per_draft },
  { name = "draft_context_length", type = &int32, bytes = per_draft },
  { name = "draft_query_begin", type = &int32, bytes = draft_rows_begin },
  { name = "draft_is_finite", type = &int32, bytes = function(s) return `[own_drafts(s)] * 4 end },
  { name = "drafts_of_ranks", type = &int32, bytes = drafts_of_ranks },
  { name = "local_logits", type = &float, bytes = local_logits },
  { name = "logits", type = &float, bytes = function(s) return `[own_rows(s)] * s.vocab_size * 4 end },
  { name = "count_tokens", type = &int32, bytes = function(s) return `s.max_seq * 4 end },
  { name = "ids_of_ranks", type = &int32, bytes = ids_of_ranks },
  { name = "cosine", type = &float, bytes = rotations },
  { name = "sine", type = &float, bytes = rotations },
  { name = "workspace", type = &opaque, bytes = function(s) return `s.workspace_bytes end },
  { name = "counts", type = &uint32, bytes = function(s) return `s.max_sequences * s.vocab_size * 4 end },
  { name = "states", type = &C.glm_sequence_state, bytes = function(s) return `s.max_sequences * [terralib.sizeof(C.glm_sequence_state)] end },
}

local num_stagings = 2

local struct Staging {
  inputs : batch.StepInputs
  decode_inputs : batch.StepInputs
  outputs_data : &int8
  output_shape : batch.StepShape
}
buffers.Staging = Staging
buffers.num_stagings = num_stagings

local struct RankBuffers {
  inputs : batch.StepInputs
  decode_inputs : batch.StepInputs
  outputs : batch.StepOutputs
  stagings : Staging[num_stagings]
}
for _, buffer in ipairs(buffers.table) do
  RankBuffers.entries:insert { field = buffer.name, type = buffer.type }
end
buffers.RankBuffers = RankBuffers

local terra aligned(bytes : int64) : int64
  return (bytes + alignment - 1) / alignment * alignment
end

terra BufferShape:output_shape() : batch.StepShape
  var shape = self.step
  shape.max_logit_rows = [int32]([own_rows(self)])
  return shape
end

local terra output_bytes(shape : &batch.StepShape) : int64
  return aligned(batch.StepOutputs.bytes_for(shape))
end

terra BufferShape:step_bytes(num_outputs : int64) : int64
  var outputs = self:output_shape()
  return aligned(batch.StepInputs.bytes_for(&self.step)) + num_outputs * output_bytes(&outputs)
end

terra Staging:bind(shape : &BufferShape, base : &int8)
  self.inputs:bind(&shape.step, base)
  self.decode_inputs:bind_decode(&shape.step, &self.inputs)
  self.outputs_data = base + aligned(batch.StepInputs.bytes_for(&shape.step))
  self.output_shape = shape:output_shape()
end

terra Staging:outputs_of(rank : int32) : batch.StepOutputs
  var outputs : batch.StepOutputs
  outputs:bind(&self.output_shape, self.outputs_data + rank * output_bytes(&self.output_shape))
  return outputs
end

terra RankBuffers:bind_host(shape : &BufferShape, base : &int8)
  for i = 0, num_stagings do
    self.stagings[i]:bind(shape, base + i * shape:step_bytes(shape.world_size))
  end
end

terra buffers.host_bytes(shape : &BufferShape) : int64
  return num_stagings * shape:step_bytes(shape.world_size)
end

terra RankBuffers:bind(shape : &BufferShape, base : &int8) : int64
  var offset = shape:step_bytes(1)
  var outputs = shape:output_shape()
  self.inputs:bind(&shape.step, base)
  self.decode_inputs:bind_decode(&shape.step, &self.inputs)
  self.outputs:bind(&outputs, base + aligned(batch.StepInputs.bytes_for(&shape.step)))
  escape
    for _, buffer in ipairs(buffers.table) do
      emit quote
        var bytes : int64 = [buffer.bytes(shape)]
        self.[buffer.name] = nil
        if bytes > 0 then
          self.[buffer.name] = [buffer.type](base + offset)
        end
        offset = offset + aligned(bytes)
      end
    end
  end
  return offset
end

terra buffers.bytes(shape : &BufferShape) : int64
  var unbound : RankBuffers
  return unbound:bind(shape, nil)
end

return buffers
