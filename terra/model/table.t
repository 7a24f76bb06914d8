local abi = require("terra.base.abi")
local C = abi.C

local rows = {
  split = { none = 0, ranks = 1, vocabulary = 2, experts = 3, expert_width = 4 },
  fp8 = { never = 0, covered = 1, refused = 2 },
  outside_layers = -1,
  layer_prefix = "model.layers.",
}

local function field(name) return function(c) return `c.[name] end end
local function always() return `true end
local function one() return `1 end
local function has_dense(c) return `c:has_dense_layers() end
local function has_moe(c) return `c:has_moe_layers() end

local function whole(value)
  return { value = value, split = rows.split.none }
end

local function shared(split, name, value, stated_as, when)
  return { split = rows.split[split], name = name, value = value, stated_as = stated_as, when = when or always }
end

local function times(size, value)
  return { value = function(c) return `[size.value(c)] * [value(c)] end, split = size.split }
end

local hidden = whole(field("hidden_size"))
local both_hidden = whole(function(c) return `2 * c.hidden_size end)
local head_dim = whole(field("head_dim"))
local num_experts = whole(field("num_experts"))
local vocabulary = whole(field("vocab_size"))

local heads = shared("ranks", "num_local_heads", field("num_heads"), "num_attention_heads")
local kv_heads = shared("ranks", "num_local_kv_heads", field("num_kv_heads"), "num_key_value_heads")
local dense_width = shared("ranks", "local_dense_width", field("intermediate_size"), "intermediate_size", has_dense)
local shared_width = shared(
  "ranks", "local_shared_width", function(c) return `c:shared_width() end, "n_shared_experts * moe_intermediate_size", has_moe
)
local experts = shared("experts", "num_local_experts", field("num_experts"), "n_routed_experts (expert_layout expert_parallel)", has_moe)
local expert_width = shared(
  "expert_width", "local_expert_width", field("moe_intermediate_size"), "moe_intermediate_size (expert_layout tensor_parallel)", has_moe
)
local head_rows = shared("vocabulary", "local_vocab_size", field("vocab_size"), "vocab_size")

rows.shared_sizes = { heads, kv_heads, dense_width, shared_width, experts, expert_width, head_rows }

local query_width = times(heads, field("head_dim"))
local key_width = times(kv_heads, field("head_dim"))

local function matrix(row)
  row.fp8, row.when = row.fp8 or "never", row.when or always
  return row
end

local function linear(row)
  row.fp8 = row.fp8 or "covered"
  return matrix(row)
end

local function vector(row)
  row.is_vector, row.columns, row.draw = true, whole(one), row.draw or 1
  return matrix(row)
end

local function mlp(prefix, width, gate_up, down, alike)
  return
    linear { gate_up, { prefix .. "gate_proj", width }, { prefix .. "up_proj", width }, columns = hidden, role = C.GLM_MATRIX_GATE_UP },
    linear { down, { prefix .. "down_proj", hidden }, columns = width, alike = alike }
end

local function in_moe_layers(c, layer) return `layer >= c.first_k_dense_replace end

rows.blocks = {
  {
    name = "model",
    is_outside_layers = true,
    is_in = function(c, layer) return `layer == [rows.outside_layers] end,
    matrix { "embedding", { "model.embed_tokens", vocabulary }, columns = hidden, role = C.GLM_MATRIX_TABLE, draw = 1 },
    vector { "final_norm", { "model.norm", hidden } },
    linear { "head", { "lm_head", head_rows, tied_to = "model.embed_tokens" }, columns = hidden, fp8 = "refused" },
  },
  {
    name = "attention",
    is_in = function(c, layer) return `layer >= 0 end,
    vector { "input_norm", { "input_layernorm", hidden } },
    vector { "post_norm", { "post_attention_layernorm", hidden }, listed = 3 },
    vector { "query_norm", { "self_attn.q_norm", head_dim }, when = field("use_qk_norm"), listed = 2 },
    vector { "key_norm", { "self_attn.k_norm", head_dim }, when = field("use_qk_norm"), listed = 2 },
    linear {
      "qkv", { "self_attn.q_proj", query_width }, { "self_attn.k_proj", key_width }, { "self_attn.v_proj", key_width },
      columns = hidden, bias = field("attention_bias"),
    },
    linear { "output", { "self_attn.o_proj", hidden }, columns = query_width },
  },
  {
    name = "dense",
    is_in = function(c, layer) return `layer >= 0 and layer < c.first_k_dense_replace end,
    mlp("mlp.", dense_width, "gate_up", "down"),
  },
  {
    name = "router",
    is_in = in_moe_layers,
    matrix { "router", { "mlp.gate", num_experts }, columns = hidden },
    vector { "selection_bias", { "mlp.gate", num_experts, suffix = ".e_score_correction_bias" }, dtype = C.GLM_DTYPE_F32, draw = 0 },
  },
  {
    name = "experts",
    is_repeated = true,
    is_in = in_moe_layers,
    mlp("mlp.experts.%d.", expert_width, "experts_gate_up", "experts_down", { "experts_gate_up", "gate_proj and up_proj of the experts" }),
  },
  {
    name = "shared",
    is_in = function(c, layer) return `layer >= c.first_k_dense_replace and c.num_shared_experts > 0 end,
    mlp("mlp.shared_experts.", shared_width, "gate_up", "down"),
  },
  {
    name = "prediction",
    is_in = function(c, layer) return `layer >= c.num_layers end,
    vector { "embedding_norm", { "enorm", hidden } },
    vector { "hidden_norm", { "hnorm", hidden } },
    linear { "joint", { "eh_proj", hidden }, columns = both_hidden },
    vector { "prediction_norm", { "shared_head.norm", hidden } },
    matrix {
      "prediction_embedding", { "embed_tokens", vocabulary }, columns = hidden, role = C.GLM_MATRIX_TABLE, draw = 1,
      when = field("has_prediction_embedding"), copy_of = "embedding", is_own = "has_prediction_embedding",
    },
    matrix {
      "prediction_head", { "shared_head.head", head_rows }, columns = hidden,
      when = field("has_prediction_head"), copy_of = "head", is_own = "has_prediction_head",
    },
  },
}

function rows.num_loaded_layers(c) return `c.num_layers + c.num_prediction_layers end

rows.head_scales = {
  { field = "key_scale", names = { "self_attn.k_scale", "self_attn.k_proj.k_scale" } },
  { field = "value_scale", names = { "self_attn.v_scale", "self_attn.v_proj.v_scale" } },
}

return rows
