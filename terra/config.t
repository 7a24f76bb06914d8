local struct ModelConfig {
  architecture : int8[64]
  hidden_size : int32
  num_layers : int32
  vocab_size : int32
  num_heads : int32
  num_kv_heads : int32
  head_dim : int32
  rotary_dim : int32
  rope_theta : double
  rms_norm_eps : float
  max_position_embeddings : int32
  attention_bias : bool
  use_qk_norm : bool
  tie_word_embeddings : bool
  is_quantised : bool
  intermediate_size : int32
  first_k_dense_replace : int32
  num_experts : int32
  top_k : int32
  num_shared_experts : int32
  moe_intermediate_size : int32
  normalise_top_k : bool
  routed_scaling_factor : float
  num_nextn_predict_layers : int32
  num_eos_tokens : int32
  eos_tokens : int32[16]
}

return { ModelConfig = ModelConfig }
