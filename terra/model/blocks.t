local abi = require("terra.base.abi")
local status = require("terra.base.status")
local weights = require("terra.model.weights")
local C = abi.C
local LayerWeights = weights.LayerWeights
local Activation, ActivationOutput = C.glm_activation, C.glm_activation_output
local try = status.try

local struct Forms {
  plain : bool
  codes : bool
}

local terra form_of(matrix : &C.glm_matrix) : Forms
  var is_present, is_fp8 = matrix.data ~= nil, matrix.dtype == C.GLM_DTYPE_F8_E4M3
  return Forms { plain = is_present and not is_fp8, codes = is_present and is_fp8 }
end

local terra in_forms(target : Activation, forms : Forms) : ActivationOutput
  var output = ActivationOutput { plain = nil, codes = nil, row_scale = nil }
  if forms.plain then
    output.plain = [&opaque](target.plain)
  end
  if forms.codes then
    output.codes = [&uint8](target.codes)
    output.row_scale = [&float](target.row_scale)
  end
  return output
end

return function(Step)
  terra Step:normed() : Activation
    var b = self.buffers
    return Activation { plain = b.plain, codes = b.codes, row_scale = b.row_scale }
  end

  terra Step:activated() : Activation
    var b = self.buffers
    return Activation { plain = b.activated, codes = b.activated_codes, row_scale = b.activated_scale }
  end

  terra Step:add_norm(delta : &opaque, weight : &float, forms : Forms) : int32
    var output = self:normed()
    if self.is_scattered then
      output.plain = self.buffers.plain_share
    end
    self:run("reduce_add_norm_quantise", {
      num_tokens = self.num_rows, hidden_size = self.config.hidden_size, epsilon = self.config.rms_norm_eps,
      residual = self.residual, delta = delta, weight = weight, output = in_forms(output, forms), is_scattered = [int32](self.is_scattered),
    })
    return C.GLM_OK
  end

  terra Step:linear(label : rawstring, matrix : &C.glm_matrix, input : Activation, output : &opaque) : int32
    var part_of_sum = terralib.select(output == self.buffers.delta, self:part_of_sum(), C.GLM_NO_PART_OF_SUM)
    self:run_as(label, "linear", {
      num_tokens = self.num_rows, matrix = matrix, input = input, output = output, part_of_sum = part_of_sum,
    })
    return C.GLM_OK
  end

  terra Step:embed() : int32
    self:run("embed", {
      num_tokens = self:num_own_rows(), id_stride = self:stride_of_own_rows(), token_ids = self.inputs.token_ids + self:first_own_row(),
      table = &self.model.embedding, residual = self.residual,
    })
    return C.GLM_OK
  end

  terra Step:store_heads(w : &LayerWeights, delta : &opaque) : int32
    var b, c, input = self.buffers, self.config, form_of(&w.qkv)
    try(self:add_norm(delta, w.input_norm, input))
    try(self:gather_shares(0, input.plain))
    try(self:linear("linear qkv", &w.qkv, self:normed(), b.qkv))
    self:run("norm_rope_store", {
      num_tokens = self.num_rows, num_heads = self.model.num_local_heads, rotary_dim = c.rotary_dim, layer = self.layer,
      epsilon = c.rms_norm_eps, query_norm = w.query_norm, key_norm = w.key_norm, cosine = b.cosine, sine = b.sine,
      positions = self.inputs.positions, slots = self.inputs.slots, qkv = b.qkv, query = self.query, cache = self.cache,
    })
    return C.GLM_OK
  end

  terra Step:attend() : int32
    self:run("attention", {
      num_tokens = self.num_rows, segments = self.segments, num_heads = self.model.num_local_heads, layer = self.layer,
      scale = [float](1.0 / C.sqrt([double](self.config.head_dim))), query = self.query, cache = self.cache,
      output = self.attended,
    })
    return C.GLM_OK
  end

  terra Step:project_output(w : &LayerWeights) : int32
    var b = self.buffers
    var attended = Activation { plain = self.attended, codes = b.attended_codes, row_scale = b.attended_scale }
    if form_of(&w.output).codes then
      self:run("quantise", {
        num_tokens = self.num_rows, width = w.output.columns, input = self.attended, codes = b.attended_codes, row_scale = b.attended_scale,
      })
    end
    return self:linear("linear output", &w.output, attended, b.delta)
  end

  terra Step:gated(w : &LayerWeights, output : &opaque) : int32
    var b = self.buffers
    try(self:linear("linear gate_up", &w.gate_up, self:normed(), b.gate_up))
    self:run("swiglu_quantise", {
      num_tokens = self.num_rows, width = w.down.columns, gate_up = b.gate_up, output = in_forms(self:activated(), form_of(&w.down)),
    })
    return self:linear("linear down", &w.down, self:activated(), output)
  end

  terra Step:route(w : &LayerWeights) : int32
    var b, c = self.buffers, self.config
    var scattered = self.is_scattered
    self:run("route", {
      num_tokens = self:num_own_rows(), top_k = c.top_k, normalise = [int32](c.normalise_top_k), scaling_factor = c.routed_scaling_factor,
      input = terralib.select(scattered, b.plain_share, b.plain), router = &w.router, selection_bias = w.selection_bias,
      expert_ids = terralib.select(scattered, b.expert_ids_share, b.expert_ids),
      expert_weights = terralib.select(scattered, b.expert_weights_share, b.expert_weights),
      num_shared_experts = [int32](w.merges_shared),
    })
    return C.GLM_OK
  end

  terra Step:mix(w : &LayerWeights, num_choices : int32) : int32
    var b, m, merges = self.buffers, self.model, w.merges_shared
    var initial : &opaque = nil
    if self.config.num_shared_experts > 0 and not merges then
      try(self:gated(w, b.shared))
      initial = b.shared
    end
    self:run("experts", {
      num_tokens = self.num_rows, top_k = num_choices, expert_begin = m.experts_begin, num_local_experts = m.num_local_experts,
      gate_up = &w.experts_gate_up.first, gate_up_stride = w.experts_gate_up.stride, gate_up_scale_stride = w.experts_gate_up.scale_stride,
      down = &w.experts_down.first, down_stride = w.experts_down.stride, down_scale_stride = w.experts_down.scale_stride,
      shared_expert_id = terralib.select(merges, self.config.num_experts, -1),
      shared_gate_up = terralib.select(merges, &w.gate_up, nil), shared_down = terralib.select(merges, &w.down, nil),
      input = self:normed(), expert_ids = b.expert_ids, expert_weights = b.expert_weights,
      initial = initial, output = b.delta, part_of_sum = self:part_of_sum(),
    })
    return C.GLM_OK
  end

  terra Step:feed_forward(w : &LayerWeights) : int32
    var own, routed = form_of(&w.gate_up), form_of(&w.experts_gate_up.first)
    var input = Forms { plain = own.plain or routed.plain, codes = own.codes or routed.codes }
    var num_choices = terralib.select(w.is_moe, self.config.top_k + [int32](w.merges_shared), 0)
    try(self:add_norm(self.buffers.delta, w.post_norm, Forms { plain = w.is_moe or input.plain, codes = input.codes }))
    if w.is_moe then
      try(self:route(w))
    end
    try(self:gather_shares(num_choices, input.plain))
    if w.is_moe then
      return self:mix(w, num_choices)
    end
    return self:gated(w, self.buffers.delta)
  end

  terra Step:head(matrix : &C.glm_matrix, first_row : int32, num_rows : int32, output : &float) : int32
    var row_bytes = self:hidden_row_bytes()
    var row_index, input = self.logit_rows, [&int8](self.buffers.plain)
    if row_index ~= nil then
      row_index = row_index + first_row
    else
      input = input + first_row * row_bytes
    end
    self:run("logits", { num_rows = num_rows, row_index = row_index, input = input, head = matrix, output = output })
    return C.GLM_OK
  end

  terra Step:logits(norm : &float, head : &C.glm_matrix) : int32
    try(self:add_norm(self.buffers.delta, norm, Forms { plain = true, codes = false }))
    try(self:gather_shares(0, true))
    if self.model.head_is_split and self.num_logit_rows > 0 then
      try(self:head(head, 0, self.num_logit_rows, self.buffers.local_logits))
      return self:exchange_logits()
    end
    var share = self:share_of_logits()
    if share.num_rows == 0 then
      return C.GLM_OK
    end
    return self:head(head, share.begin, share.num_rows, self.buffers.logits)
  end

  terra Step:forward() : int32
    var num_layers, plan, delta = self.config.num_layers, self.plan, [&opaque](nil)
    try(self:meet())
    try(self:embed())
    for layer = 0, num_layers do
      var w, narrows = &self.model.layers[layer], layer == num_layers - 1 and not plan.shape:drafts_with_layer()
      self.layer = layer
      try(self:store_heads(w, delta))
      if narrows and plan.num_logit_rows == 0 then
        return C.GLM_OK
      end
      try(self:attend())
      if narrows and plan.num_logit_rows < plan.num_tokens then
        try(self:keep_logit_rows())
      end
      try(self:project_output(w))
      try(self:feed_forward(w))
      delta = self.buffers.delta
    end
    self.layer = [weights.outside_layers]
    return self:logits(self.model.final_norm, &self.model.head)
  end

  terra Step:join(w : &LayerWeights) : int32
    var b, width = self.buffers, w.joint.columns
    var own, table = &w.prediction_embedding, &self.model.embedding
    self:run("embed_norm_concat", {
      num_tokens = self.num_rows, hidden_size = self.config.hidden_size, epsilon = self.config.rms_norm_eps,
      token_ids = b.joint_ids, positions = self.inputs.positions, table = terralib.select(own.data ~= nil, own, table),
      embedding_norm = w.embedding_norm, hidden = b.plain, hidden_norm = w.hidden_norm, output = b.joint_input,
    })
    if form_of(&w.joint).codes then
      self:run("quantise", { num_tokens = self.num_rows, width = width, input = b.joint_input, codes = b.joint_codes, row_scale = b.joint_scale })
    end
    var input = Activation { plain = b.joint_input, codes = b.joint_codes, row_scale = b.joint_scale }
    return self:linear("linear joint", &w.joint, input, self.residual)
  end

  terra Step:predict() : int32
    var w = &self.model.layers[self.layer]
    try(self:join(w))
    try(self:store_heads(w, nil))
    if self.plan.num_draft_rows == 0 then
      return C.GLM_OK
    end
    try(self:keep_draft_rows())
    try(self:attend())
    try(self:project_output(w))
    try(self:feed_forward(w))
    return self:logits(w.prediction_norm, terralib.select(w.prediction_head.data ~= nil, &w.prediction_head, &self.model.head))
  end
end
