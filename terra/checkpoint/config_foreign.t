local abi = require("terra.base.abi")
local json = require("terra.base.json")
local reader = require("terra.checkpoint.config_reader")
local status = require("terra.base.status")
local text = require("terra.base.text")
local C = abi.C
local ConfigReader = reader.ConfigReader

local foreign = {}

foreign.absent = {
  "add_cross_attention", "alibi", "attention_logit_cap", "attn_logit_cap", "apply_layernorm_1p", "apply_residual_connection_post_layernorm",
  "apply_router_weight_on_input", "attention_output_gate", "attention_sink_bias", "attention_sinks", "attention_out_bias",
  "attn_logit_softcap", "attn_logit_softcapping", "attn_output_gate", "attn_temperature_tuning", "add_bias_linear",
  "add_full_attention_sink_bias", "add_swa_attention_sink_bias", "clip_qkv", "compression_config", "expert_bias",
  "final_logit_cap", "final_logit_softcap", "final_logit_softcapping", "index_topk", "is_encoder_decoder", "kv_lora_rank", "layernorm_1p",
  "layernorm_zero_centered", "lm_head_bias", "logit_softcapping", "logits_soft_cap", "logits_softcapping", "mlp_bias", "mlp_only_layers",
  "moe_apply_router_weight_on_input", "moe_bias", "no_rope_layer_interval", "nope_layer_interval", "norm_unit_offset",
  "normalize_embedding", "num_kv_shared_layers", "output_logit_softcapping", "parallel_attn", "parallel_residual",
  "post_layer_norm", "post_norm", "q_lora_rank", "qk_clip", "qk_nope_head_dim", "quantization", "rms_norm_add_unit_offset",
  "rms_norm_unit_offset", "rope_interleave", "rope_interleaved", "rotary_interleaved", "router_logit_softcapping",
  "scale_depth", "scale_embedding", "swiglu_limit", "use_alibi", "use_attention_sink", "use_attention_sinks",
  "use_bidirectional_attention", "use_dynamic_ntk", "use_gated_attention", "use_gemma_rms_norm", "use_logn_attn",
  "use_mla", "use_mup", "use_parallel_residual", "use_post_norm", "use_shared_expert_gate", "zero_centered_gamma",
  "zero_expert_num",
}

foreign.ones = {
  "attention_in_multiplier", "attention_out_multiplier", "decoder_sparse_step", "embedding_multiplier", "embedding_scale",
  "global_attn_every_n_layers", "interleave_moe_layer_step", "key_multiplier", "lm_head_multiplier", "logit_scale",
  "logits_scaling", "moe_layer_interval", "output_multiplier", "residual_multiplier", "residual_scale", "rope_ratio",
  "scale_emb",
}

foreign.trues = { "is_causal", "moe_router_enable_expert_bias", "use_expert_bias", "use_routing_bias" }
foreign.norms_of_heads = { "qk_layernorm", "qk_norm", "use_qk_layernorm" }

foreign.words = {
  { key = "hidden_act", words = { "silu", "swish" } },
  { key = "hidden_activation", words = { "silu", "swish" } },
  { key = "moe_router_activation_func", words = { "sigmoid" } },
  { key = "moe_router_score_function", words = { "sigmoid" } },
  { key = "norm_type", words = { "rmsnorm", "rms_norm", "RMSNorm" } },
  { key = "normalization", words = { "rmsnorm", "rms_norm", "RMSNorm" } },
  { key = "position_embedding_type", words = { "rope", "rotary" } },
  { key = "qk_norm_type", words = { "per_head" } },
  { key = "rms_norm_type", words = { "rmsnorm", "rms_norm", "RMSNorm" } },
  { key = "router_score_function", words = { "sigmoid" } },
  { key = "router_scoring_func", words = { "sigmoid" } },
  { key = "score_func", words = { "sigmoid" } },
  { key = "score_function", words = { "sigmoid" } },
  { key = "scoring_func", words = { "sigmoid" } },
  { key = "topk_method", words = { "noaux_tc" } },
}

foreign.windows = {
  "attention_chunk_size", "attention_window", "attention_window_size", "sliding_window", "sliding_window_size", "window_size",
}

local function quoted(words)
  return '"' .. table.concat(words, '" or "') .. '"'
end

local terra says_nothing(node : &json.Node) : bool
  return node == nil or node.kind == json.false_kind or (node.kind == json.number_kind and node.number == 0)
    or (node.kind >= json.array_kind and node.num_children == 0)
end

local terra is_number(node : &json.Node, wanted : double) : bool
  var difference = node.number - wanted
  return node.kind == json.number_kind and difference <= 1e-6 * wanted and difference >= -1e-6 * wanted
end

local terra is_word(node : &json.Node, word : rawstring) : bool
  return node.kind == json.string_kind and text.equals(node.string, word)
end

local terra expect_number(from : &ConfigReader, key : rawstring, wanted : double) : int32
  var node = from:find(key)
  if node == nil or is_number(node, wanted) then
    return C.GLM_OK
  end
  var supported : int8[32]
  C.snprintf(&supported[0], 32, "%.9g", wanted)
  return from:refuse(key, node, &supported[0])
end

local terra expect_flag(from : &ConfigReader, key : rawstring, wanted : bool) : int32
  if from:find(key) == nil then
    return C.GLM_OK
  end
  return from:expect_flag(key, wanted)
end

local terra check_constants(from : &ConfigReader) : int32
  escape
    for _, key in ipairs(foreign.absent) do
      emit quote
        if not says_nothing(from:find(key)) then
          return from:refuse(key, from:find(key), "null, false or 0")
        end
      end
    end
    for _, key in ipairs(foreign.ones) do
      emit quote status.try(expect_number(from, key, 1.0)) end
    end
    for _, entry in ipairs(foreign.words) do
      local matches = `false
      for _, word in ipairs(entry.words) do
        matches = `matches or is_word(from:find([entry.key]), word)
      end
      emit quote
        if from:find([entry.key]) ~= nil and not matches then
          return from:refuse([entry.key], from:find([entry.key]), [quoted(entry.words)])
        end
      end
    end
    for _, key in ipairs(foreign.trues) do
      emit quote status.try(expect_flag(from, key, true)) end
    end
  end
  return C.GLM_OK
end

local struct Items {
  num_first : int32
  first_word : rawstring
  word : rawstring
  first_number : double
  number : double
}

local terra check_item(from : &ConfigReader, key : rawstring, index : int32, item : &json.Node, items : &Items) : int32
  var name : int8[64], supported : int8[64]
  var word, number = items.word, items.number
  if index < items.num_first then
    word, number = items.first_word, items.first_number
  end
  C.snprintf(&name[0], 64, "%s[%d]", key, index)
  if word == nil then
    C.snprintf(&supported[0], 64, "%g", number)
    if item.kind == json.number_kind and item.number == number then
      return C.GLM_OK
    end
  else
    C.snprintf(&supported[0], 64, "\"%s\"", word)
    if is_word(item, word) then
      return C.GLM_OK
    end
  end
  return from:refuse(&name[0], item, &supported[0])
end

local terra expect_items(from : &ConfigReader, key : rawstring, items : Items) : int32
  var node = from:find(key)
  if node == nil then
    return C.GLM_OK
  end
  if node.kind ~= json.array_kind then
    return from:wrong_kind(key, "a list with one entry per layer", node)
  end
  var index, item = 0, from.document:child(node)
  while item ~= nil do
    status.try(check_item(from, key, index, item, &items))
    index, item = index + 1, from.document:next(item)
  end
  return C.GLM_OK
end

local terra expect_words(from : &ConfigReader, key : rawstring, num_first : int32, first : rawstring, other : rawstring) : int32
  return expect_items(from, key, Items { num_first, first, other, 0, 0 })
end

local terra expect_numbers(from : &ConfigReader, key : rawstring, num_zeros : int32) : int32
  return expect_items(from, key, Items { num_zeros, nil, nil, 0, 1 })
end

local terra is_off(from : &ConfigReader, key : rawstring) : bool
  var node = from:find(key)
  return node ~= nil and node.kind == json.false_kind
end

local terra check_windows(from : &ConfigReader, positions : int32) : int32
  status.try(expect_words(from, "layer_types", 0, nil, "full_attention"))
  if from:find("layer_types") ~= nil or is_off(from, "use_sliding_window") then
    return C.GLM_OK
  end
  escape
    for _, key in ipairs(foreign.windows) do
      emit quote
        var node = from:find(key)
        if not says_nothing(node) and (node.kind ~= json.number_kind or (node.number > 0 and node.number < positions)) then
          return from:refuse(key, node, "null or a window of at least max_position_embeddings")
        end
      end
    end
  end
  return C.GLM_OK
end

return function(ModelConfig)
  local terra check_layers(self : &ModelConfig, from : &ConfigReader) : int32
    status.try(expect_words(from, "mlp_layer_types", self.first_k_dense_replace, "dense", "sparse"))
    status.try(expect_numbers(from, "no_rope_layers", 0))
    status.try(expect_numbers(from, "hybrid_layer_pattern", [2 ^ 31 - 1]))
    var node = from:find("moe_layer_freq")
    if node ~= nil and node.kind ~= json.array_kind then
      return expect_number(from, "moe_layer_freq", 1.0)
    end
    return expect_numbers(from, "moe_layer_freq", self.first_k_dense_replace)
  end

  local terra check_heads(self : &ModelConfig, from : &ConfigReader) : int32
    escape
      for _, key in ipairs(foreign.norms_of_heads) do
        emit quote status.try(expect_flag(from, key, self.use_qk_norm)) end
      end
      for _, key in ipairs { "query_pre_attn_scalar", "qk_head_dim", "v_head_dim" } do
        emit quote status.try(expect_number(from, key, self.head_dim)) end
      end
      for _, key in ipairs { "attention_multiplier", "softmax_scale" } do
        emit quote status.try(expect_number(from, key, 1.0 / C.sqrt([double](self.head_dim)))) end
      end
    end
    return expect_number(from, "rotary_dim", self.rotary_dim)
  end

  terra ModelConfig:check_foreign(from : &ConfigReader) : int32
    status.try(check_constants(from))
    status.try(check_windows(from, self.max_position_embeddings))
    status.try(check_layers(self, from))
    status.try(check_heads(self, from))
    return expect_number(from, "dim_model_base", self.hidden_size)
  end
end
