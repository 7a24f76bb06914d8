local fields = {}

local largest = 2 ^ 31 - 1

fields.integers = {
  { field = "hidden_size", key = "hidden_size", least = 1, most = 2 ^ 20 },
  { field = "num_layers", key = "num_hidden_layers", least = 1, most = 4096 },
  { field = "vocab_size", key = "vocab_size", least = 1, most = 2 ^ 24 },
  { field = "num_heads", key = "num_attention_heads", least = 1, most = 4096 },
  { field = "num_kv_heads", key = "num_key_value_heads", least = 1, most = 4096 },
  { field = "head_dim", key = "head_dim", least = 2, most = 4096, otherwise = 0 },
  { field = "max_position_embeddings", key = "max_position_embeddings", least = 1, most = 2 ^ 26 },
  { field = "intermediate_size", key = "intermediate_size", least = 1, most = 2 ^ 20 },
  { field = "first_k_dense_replace", key = "first_k_dense_replace", least = 0, most = largest },
  { field = "num_experts", key = "n_routed_experts", least = 1, most = 65536 },
  { field = "top_k", key = "num_experts_per_tok", least = 1, most = 65536 },
  { field = "num_shared_experts", key = "n_shared_experts", least = 0, most = 64, otherwise = 1, null = 0 },
  { field = "moe_intermediate_size", key = "moe_intermediate_size", least = 1, most = 2 ^ 20 },
  { field = "num_nextn_predict_layers", key = "num_nextn_predict_layers", least = 0, most = 64, otherwise = 0 },
}

fields.ones = { "n_group", "topk_group" }

fields.flags = {
  { field = "attention_bias", key = "attention_bias", otherwise = false },
  { field = "use_qk_norm", key = "use_qk_norm", otherwise = false },
  { field = "tie_word_embeddings", key = "tie_word_embeddings", otherwise = false },
  { field = "normalise_top_k", key = "norm_topk_prob", otherwise = true },
}

return fields
