local abi = require("terra.base.abi")
local batch = require("terra.scheduling.batch")
local dtypes = require("terra.base.dtypes")
local rank = require("terra.ranks.rank")
local shares = require("terra.scheduling.shares")
local status = require("terra.base.status")
local weights = require("terra.checkpoint.weights")
local C = abi.C

local forward = {}

local Rank = rank.Rank
local RowShare = shares.RowShare
local StepPlan = batch.StepPlan
local LayerWeights = weights.LayerWeights

local struct Rows {
  num_rows : int32
  is_scattered : bool
  residual : &opaque
  attended : &opaque
  logit_rows : &int32
}

local outside_layers, run, run_as, try = rank.outside_layers, rank.run, rank.run_as, status.try

local terra is_fp8(matrix : &C.glm_matrix) : bool
  return matrix.data ~= nil and matrix.dtype == C.GLM_DTYPE_F8_E4M3
end

local terra is_plain(matrix : &C.glm_matrix) : bool
  return matrix.data ~= nil and matrix.dtype ~= C.GLM_DTYPE_F8_E4M3
end

local terra rows_each(self : &Rank, rows : &Rows) : int32
  return [int32](shares.rows_each(rows.num_rows, self.world_size))
end

local terra num_own_rows(self : &Rank, rows : &Rows) : int32
  return (rows.num_rows - self.index + self.world_size - 1) / self.world_size
end

local terra is_scattered(self : &Rank, plan : &StepPlan) : bool
  var num_rows = [int32](shares.rows_each(plan.num_tokens, self.world_size)) * self.world_size
  return self.world_size > 1 and self.fewest_scattered_rows > 0 and plan.num_tokens >= self.fewest_scattered_rows
    and plan.num_tokens >= self.world_size and plan.num_logit_rows < plan.num_tokens and num_rows <= plan.shape.max_step_tokens
end

local terra part_of_sum(rows : &Rows) : int32
  return terralib.select(rows.is_scattered, C.GLM_PART_OF_SCATTERED_SUM, C.GLM_PART_OF_SUM)
end

local terra hidden_row_bytes(self : &Rank) : int64
  return [int64](self.config.hidden_size) * dtypes.bytes(self.activation_dtype)
end

local terra add_array(args : &C.glm_all_gather_args, row_bytes : int64, share : &opaque, output : &opaque)
  args.arrays[args.num_arrays] = C.glm_gathered { row_bytes, share, output }
  args.num_arrays = args.num_arrays + 1
end

local terra normed(self : &Rank) : C.glm_activation
  var b = &self.buffers
  return C.glm_activation { plain = b.plain, codes = b.codes, row_scale = b.row_scale }
end

local terra activated(self : &Rank) : C.glm_activation
  var b = &self.buffers
  return C.glm_activation { plain = b.activated, codes = b.activated_codes, row_scale = b.activated_scale }
end

local terra output_for(target : C.glm_activation, wants_plain : bool, wants_codes : bool) : C.glm_activation_output
  var output : C.glm_activation_output
  output.plain = nil
  output.codes = nil
  output.row_scale = nil
  if wants_plain then
    output.plain = [&opaque](target.plain)
  end
  if wants_codes then
    output.codes = [&uint8](target.codes)
    output.row_scale = [&float](target.row_scale)
  end
  return output
end

local terra scattered_normed(self : &Rank) : C.glm_activation
  var b = &self.buffers
  return C.glm_activation { plain = b.plain_share, codes = b.codes, row_scale = b.row_scale }
end

local terra reduce_add_norm(
  self : &Rank,
  rows : &Rows,
  layer : int32,
  delta : &opaque,
  weight : &float,
  wants_plain : bool,
  wants_codes : bool,
  message : &C.glm_message
) : int32
  var args : C.glm_reduce_add_norm_quantise_args
  args.num_tokens = rows.num_rows
  args.hidden_size = self.config.hidden_size
  args.epsilon = self.config.rms_norm_eps
  args.residual = rows.residual
  args.delta = delta
  args.weight = weight
  args.output = output_for(normed(self), wants_plain, wants_codes)
  args.is_scattered = 0
  if rows.is_scattered then
    args.output = output_for(scattered_normed(self), wants_plain, wants_codes)
    args.is_scattered = 1
  end
  run(self, message, layer, "reduce_add_norm_quantise", args)
  return C.GLM_OK
end

local terra num_merged(w : &LayerWeights) : int32
  return terralib.select(w.merges_shared, 1, 0)
end

local terra num_choices(self : &Rank, w : &LayerWeights) : int32
  return self.config.top_k + num_merged(w)
end

local terra gather_shares(
  self : &Rank,
  rows : &Rows,
  layer : int32,
  choices : int32,
  wants_plain : bool,
  message : &C.glm_message
) : int32
  if not rows.is_scattered then
    return C.GLM_OK
  end
  var b = &self.buffers
  var args : C.glm_all_gather_args
  args.num_rows = rows_each(self, rows)
  args.num_arrays = 0
  if wants_plain then
    add_array(&args, hidden_row_bytes(self), b.plain_share, b.plain)
  end
  if choices > 0 then
    add_array(&args, choices * sizeof(int32), b.expert_ids_share, b.expert_ids)
    add_array(&args, choices * sizeof(float), b.expert_weights_share, b.expert_weights)
  end
  run(self, message, layer, "all_gather", args)
  return C.GLM_OK
end

local terra meet(self : &Rank, rows : &Rows, message : &C.glm_message) : int32
  return gather_shares(self, rows, outside_layers, 0, false, message)
end

local terra linear(
  self : &Rank,
  rows : &Rows,
  layer : int32,
  label : rawstring,
  matrix : &C.glm_matrix,
  input : C.glm_activation,
  output : &opaque,
  message : &C.glm_message
) : int32
  var args : C.glm_linear_args
  args.num_tokens = rows.num_rows
  args.matrix = matrix
  args.input = input
  args.output = output
  args.part_of_sum = C.GLM_NO_PART_OF_SUM
  if output == self.buffers.delta then
    args.part_of_sum = part_of_sum(rows)
  end
  run_as(self, message, layer, label, "linear", args)
  return C.GLM_OK
end

local terra store_heads(self : &Rank, plan : &StepPlan, layer : int32, w : &LayerWeights, message : &C.glm_message) : int32
  var b = &self.buffers
  var args : C.glm_norm_rope_store_args
  args.num_tokens = plan.num_tokens
  args.num_heads = self.weights.num_local_heads
  args.rotary_dim = self.config.rotary_dim
  args.layer = layer
  args.epsilon = self.config.rms_norm_eps
  args.query_norm = w.query_norm
  args.key_norm = w.key_norm
  args.cosine = b.cosine
  args.sine = b.sine
  args.positions = self.inputs.positions
  args.slots = self.inputs.slots
  args.qkv = b.qkv
  args.query = b.query
  args.cache = &self.cache
  run(self, message, layer, "norm_rope_store", args)
  return C.GLM_OK
end

local terra attend(self : &Rank, plan : &StepPlan, layer : int32, message : &C.glm_message) : int32
  var b = &self.buffers
  var args : C.glm_attention_args
  args.num_tokens = plan.num_tokens
  args.segments.num_segments = plan.num_segments
  args.segments.num_decode_segments = plan.num_decode_segments
  args.segments.query_begin = self.inputs.query_begin
  args.segments.context_length = self.inputs.context_length
  args.segments.table_row = self.inputs.table_row
  args.segments.page_table = self.inputs.page_table
  args.segments.page_table_stride = plan.shape.max_pages_per_sequence
  args.segments.num_table_rows = plan.shape.max_sequences
  args.segments.rows_per_sequence = 1
  args.num_heads = self.weights.num_local_heads
  args.layer = layer
  args.scale = [float](1.0 / C.sqrt([double](self.config.head_dim)))
  args.query = b.query
  args.cache = &self.cache
  args.output = b.attended
  run(self, message, layer, "attention", args)
  return C.GLM_OK
end

local terra project_output(self : &Rank, rows : &Rows, layer : int32, w : &LayerWeights, message : &C.glm_message) : int32
  var b = &self.buffers
  var input = C.glm_activation { plain = rows.attended, codes = b.attended_codes, row_scale = b.attended_scale }
  if is_fp8(&w.output) then
    var args : C.glm_quantise_args
    args.num_tokens = rows.num_rows
    args.width = w.output.columns
    args.input = rows.attended
    args.codes = b.attended_codes
    args.row_scale = b.attended_scale
    run(self, message, layer, "quantise", args)
  end
  return linear(self, rows, layer, "linear output", &w.output, input, b.delta, message)
end

local terra store_new_heads(self : &Rank, plan : &StepPlan, rows : &Rows, layer : int32, w : &LayerWeights, message : &C.glm_message) : int32
  var delta = self.buffers.delta
  if layer == 0 then
    delta = nil
  end
  try(reduce_add_norm(self, rows, layer, delta, w.input_norm, is_plain(&w.qkv), is_fp8(&w.qkv), message))
  try(gather_shares(self, rows, layer, 0, is_plain(&w.qkv), message))
  try(linear(self, rows, layer, "linear qkv", &w.qkv, normed(self), self.buffers.qkv, message))
  return store_heads(self, plan, layer, w, message)
end

local terra gated_block(self : &Rank, rows : &Rows, layer : int32, w : &LayerWeights, output : &opaque, message : &C.glm_message) : int32
  try(linear(self, rows, layer, "linear gate_up", &w.gate_up, normed(self), self.buffers.gate_up, message))
  var args : C.glm_swiglu_quantise_args
  args.num_tokens = rows.num_rows
  args.width = w.down.columns
  args.gate_up = self.buffers.gate_up
  args.output = output_for(activated(self), is_plain(&w.down), is_fp8(&w.down))
  run(self, message, layer, "swiglu_quantise", args)
  return linear(self, rows, layer, "linear down", &w.down, activated(self), output, message)
end

local terra route(self : &Rank, rows : &Rows, layer : int32, w : &LayerWeights, message : &C.glm_message) : int32
  var args : C.glm_route_args
  var b = &self.buffers
  args.num_tokens = rows.num_rows
  args.top_k = self.config.top_k
  args.normalise = 0
  if self.config.normalise_top_k then
    args.normalise = 1
  end
  args.scaling_factor = self.config.routed_scaling_factor
  args.input = b.plain
  args.router = &w.router
  args.selection_bias = w.selection_bias
  args.expert_ids = b.expert_ids
  args.expert_weights = b.expert_weights
  args.num_shared_experts = num_merged(w)
  if rows.is_scattered then
    args.num_tokens = num_own_rows(self, rows)
    args.input = b.plain_share
    args.expert_ids = b.expert_ids_share
    args.expert_weights = b.expert_weights_share
  end
  run(self, message, layer, "route", args)
  return C.GLM_OK
end

local terra routed_experts(self : &Rank, rows : &Rows, layer : int32, w : &LayerWeights, initial : &opaque, message : &C.glm_message) : int32
  var args : C.glm_experts_args
  args.num_tokens = rows.num_rows
  args.top_k = num_choices(self, w)
  args.expert_begin = self.weights.experts_begin
  args.num_local_experts = self.weights.num_local_experts
  args.gate_up = &w.experts_gate_up
  args.down = &w.experts_down
  args.gate_up_stride = w.experts_gate_up_stride
  args.gate_up_scale_stride = w.experts_gate_up_scale_stride
  args.down_stride = w.experts_down_stride
  args.down_scale_stride = w.experts_down_scale_stride
  args.shared_expert_id = -1
  args.shared_gate_up = nil
  args.shared_down = nil
  if w.merges_shared then
    args.shared_expert_id = self.config.num_experts
    args.shared_gate_up = &w.gate_up
    args.shared_down = &w.down
  end
  args.input = normed(self)
  args.expert_ids = self.buffers.expert_ids
  args.expert_weights = self.buffers.expert_weights
  args.initial = initial
  args.output = self.buffers.delta
  args.part_of_sum = part_of_sum(rows)
  run(self, message, layer, "experts", args)
  return C.GLM_OK
end

local terra moe_block(self : &Rank, rows : &Rows, layer : int32, w : &LayerWeights, message : &C.glm_message) : int32
  var initial : &opaque = nil
  if self.config.num_shared_experts > 0 and not w.merges_shared then
    try(gated_block(self, rows, layer, w, self.buffers.shared, message))
    initial = self.buffers.shared
  end
  return routed_experts(self, rows, layer, w, initial, message)
end

local terra feed_forward_block(self : &Rank, rows : &Rows, layer : int32, w : &LayerWeights, message : &C.glm_message) : int32
  var wants_codes = is_fp8(&w.gate_up) or is_fp8(&w.experts_gate_up)
  var wants_plain = is_plain(&w.gate_up) or is_plain(&w.experts_gate_up)
  var choices = 0
  try(reduce_add_norm(self, rows, layer, self.buffers.delta, w.post_norm, w.is_moe or wants_plain, wants_codes, message))
  if w.is_moe then
    try(route(self, rows, layer, w, message))
    choices = num_choices(self, w)
  end
  try(gather_shares(self, rows, layer, choices, wants_plain, message))
  if w.is_moe then
    return moe_block(self, rows, layer, w, message)
  end
  return gated_block(self, rows, layer, w, self.buffers.delta, message)
end

local terra embed(self : &Rank, rows : &Rows, message : &C.glm_message) : int32
  var args : C.glm_embed_args
  args.num_tokens = rows.num_rows
  args.id_stride = 1
  args.token_ids = self.inputs.token_ids
  if rows.is_scattered then
    args.num_tokens = num_own_rows(self, rows)
    args.id_stride = self.world_size
    args.token_ids = self.inputs.token_ids + self.index
  end
  args.table = &self.weights.embedding
  args.residual = self.buffers.residual
  run(self, message, outside_layers, "embed", args)
  return C.GLM_OK
end

local terra select_rows(self : &Rank, plan : &StepPlan, layer : int32, all_rows : &C.glm_matrix, output : &opaque, message : &C.glm_message) : int32
  var args : C.glm_embed_args
  args.num_tokens = plan.num_logit_rows
  args.id_stride = 1
  args.token_ids = self.inputs.logit_rows
  args.table = all_rows
  args.residual = output
  run_as(self, message, layer, "select rows", "embed", args)
  return C.GLM_OK
end

local terra gather_residual(self : &Rank, rows : &Rows, layer : int32, message : &C.glm_message) : int32
  var args : C.glm_all_gather_args
  args.num_rows = rows_each(self, rows)
  args.num_arrays = 0
  add_array(&args, hidden_row_bytes(self), rows.residual, self.buffers.delta)
  run(self, message, layer, "all_gather", args)
  return C.GLM_OK
end

local terra keep_logit_rows(self : &Rank, plan : &StepPlan, rows : &Rows, layer : int32, message : &C.glm_message) : int32
  var b = &self.buffers
  var residual_rows = &self.residual_rows
  if rows.is_scattered then
    try(gather_residual(self, rows, layer, message))
    residual_rows = &self.gathered_rows
  end
  try(select_rows(self, plan, layer, residual_rows, b.kept_residual, message))
  try(select_rows(self, plan, layer, &self.attended_rows, b.query, message))
  @rows = Rows { num_rows = plan.num_logit_rows, is_scattered = false, residual = b.kept_residual, attended = b.query, logit_rows = nil }
  return C.GLM_OK
end

local terra logits_of(self : &Rank, rows : &Rows, first_row : int32, num_rows : int32, output : &float, message : &C.glm_message) : int32
  var args : C.glm_logits_args
  args.num_rows = num_rows
  args.row_index = nil
  args.input = self.buffers.plain
  if rows.logit_rows ~= nil then
    args.row_index = rows.logit_rows + first_row
  else
    args.input = [&int8](self.buffers.plain) + first_row * hidden_row_bytes(self)
  end
  args.head = &self.weights.head
  args.output = output
  run(self, message, outside_layers, "logits", args)
  return C.GLM_OK
end

local terra exchange_logits(self : &Rank, plan : &StepPlan, message : &C.glm_message) : int32
  var args : C.glm_all_to_all_args
  args.num_rows = plan.num_logit_rows
  args.row_bytes = [int64](self.weights.local_vocab_size) * sizeof(float)
  args.input = self.buffers.local_logits
  args.output = self.buffers.logits
  run(self, message, outside_layers, "all_to_all", args)
  return C.GLM_OK
end

terra Rank:share_of(plan : &StepPlan) : RowShare
  return shares.of(plan.num_logit_rows, plan.num_sample_rows, self.index, self.world_size)
end

local terra logits(self : &Rank, plan : &StepPlan, rows : &Rows, message : &C.glm_message) : int32
  try(reduce_add_norm(self, rows, outside_layers, self.buffers.delta, self.weights.final_norm, true, false, message))
  if self.weights.head_is_split then
    try(logits_of(self, rows, 0, plan.num_logit_rows, self.buffers.local_logits, message))
    return exchange_logits(self, plan, message)
  end
  var share = self:share_of(plan)
  if share.num_rows == 0 then
    return C.GLM_OK
  end
  return logits_of(self, rows, share.begin, share.num_rows, self.buffers.logits, message)
end

local sampling_arrays = {
  "temperature", "top_p", "min_p", "top_k", "repetition_penalty", "frequency_penalty", "presence_penalty",
  "seed", "position", "row_offset", "count_row", "mask_row", "num_logprobs", "forced_token", "bias_begin", "bias_end",
}
local sampling_tables = { "bias_tokens", "bias_values", "masks" }
local sampling_results = { "token_ids", "is_finite", "logprob", "top_ids", "top_logprobs" }

terra forward.sample(self : &Rank, plan : &StepPlan, share : &RowShare, message : &C.glm_message) : int32
  var args : C.glm_sample_args
  args.num_rows = share.num_samples
  args.vocab_size = self.config.vocab_size
  args.num_count_rows = plan.shape.max_sequences
  args.num_masks = plan.num_masks
  args.num_biases = plan.num_biases
  args.logits = self.buffers.logits
  args.counts = self.buffers.counts
  args.input_ids = self.inputs.token_ids + share.begin
  escape
    for _, name in ipairs(sampling_arrays) do
      emit quote args.[name] = self.inputs.[name] + share.begin end
    end
    for _, name in ipairs(sampling_tables) do
      emit quote args.[name] = self.inputs.[name] end
    end
    for _, name in ipairs(sampling_results) do
      emit quote args.[name] = self.buffers.outputs.[name] end
    end
  end
  run(self, message, outside_layers, "sample", args)
  return C.GLM_OK
end

local terra gather_ids(self : &Rank, share : &RowShare, message : &C.glm_message) : int32
  var args : C.glm_all_gather_args
  args.num_rows = 1
  args.num_arrays = 0
  var row_bytes = [int64](share.rows_each) * sizeof(int32)
  add_array(&args, row_bytes, self.buffers.outputs.token_ids, self.buffers.ids_of_ranks)
  run(self, message, outside_layers, "all_gather", args)
  return C.GLM_OK
end

local terra sampled_ids(self : &Rank) : &int32
  return terralib.select(self.world_size > 1, self.buffers.ids_of_ranks, self.buffers.outputs.token_ids)
end

terra forward.accept_samples(self : &Rank, plan : &StepPlan, share : &RowShare, message : &C.glm_message) : int32
  if self.world_size > 1 then
    try(gather_ids(self, share, message))
  end
  var args : C.glm_accept_args
  args.num_rows = plan.num_sample_rows
  args.vocab_size = self.config.vocab_size
  args.num_table_rows = plan.shape.max_sequences
  args.row_offset = self.inputs.row_offset
  args.input_ids = self.inputs.token_ids
  args.sampled_ids = sampled_ids(self)
  args.position = self.inputs.position
  args.state_row = self.inputs.state_row
  args.count_row = self.inputs.count_row
  args.counts = self.buffers.counts
  args.states = self.buffers.states
  run(self, message, outside_layers, "accept", args)
  return C.GLM_OK
end

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
  args.continuation_stride = 0
  escape
    for _, name in ipairs(step_inputs) do
      emit quote args.[name] = self.inputs.[name] end
    end
  end
  run(self, message, outside_layers, "begin_step", args)
  return C.GLM_OK
end

terra forward.step(self : &Rank, plan : &StepPlan, message : &C.glm_message) : int32
  if plan.num_decode_tokens > 0 then
    try(begin_step(self, plan, message))
  end
  var rows = Rows {
    num_rows = plan.num_tokens,
    is_scattered = is_scattered(self, plan),
    residual = self.buffers.residual,
    attended = self.buffers.attended,
    logit_rows = self.inputs.logit_rows,
  }
  try(meet(self, &rows, message))
  try(embed(self, &rows, message))
  for layer = 0, self.config.num_layers do
    var w = &self.weights.layers[layer]
    var is_last = layer == self.config.num_layers - 1
    try(store_new_heads(self, plan, &rows, layer, w, message))
    if is_last and plan.num_logit_rows == 0 then
      return C.GLM_OK
    end
    try(attend(self, plan, layer, message))
    if is_last and plan.num_logit_rows < plan.num_tokens then
      try(keep_logit_rows(self, plan, &rows, layer, message))
    end
    try(project_output(self, &rows, layer, w, message))
    try(feed_forward_block(self, &rows, layer, w, message))
  end
  return logits(self, plan, &rows, message)
end

return forward
