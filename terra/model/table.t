local abi = require("terra.base.abi")
local config = require("terra.checkpoint.config")
local C = abi.C
local ModelConfig = config.ModelConfig

local rows = {
  split = { none = 0, ranks = 1, vocabulary = 2, experts = 3, expert_width = 4 },
  fp8 = { never = 0, covered = 1, refused = 2 },
  outside_layers = -1,
  config_dtype = -1,
  no_slot = -1,
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
  row.fp8 = row.fp8 or "never"
  return row
end

local function linear(row)
  row.fp8 = row.fp8 or "covered"
  return row
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

rows.blocks = {
  {
    name = "model",
    prefix = "",
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
    is_in = function(c, layer) return `layer >= c.first_k_dense_replace end,
    matrix { "router", { "mlp.gate", num_experts }, columns = hidden },
    vector { "selection_bias", { "mlp.gate", num_experts, suffix = ".e_score_correction_bias" }, dtype = C.GLM_DTYPE_F32, draw = 0 },
  },
  {
    name = "experts",
    is_repeated = true,
    is_in = function(c, layer) return `layer >= c.first_k_dense_replace end,
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
  },
}

rows.head_scales = {
  { field = "key_scale", names = { "k_scale", "k_proj.k_scale" } },
  { field = "value_scale", names = { "v_scale", "v_proj.v_scale" } },
}

local struct Matrices {
  first : C.glm_matrix
  stride : int64
  scale_stride : int64
}
rows.Matrices = Matrices

local struct LayerWeights {
  is_moe : bool
  merges_shared : bool
}
rows.LayerWeights = LayerWeights

local struct ModelWeights {
  layers : &LayerWeights
  head_is_split : bool
  experts_begin : int32
  key_scale : &float
  value_scale : &float
}
rows.ModelWeights = ModelWeights

for _, shared_size in ipairs(rows.shared_sizes) do
  ModelWeights.entries:insert { field = shared_size.name, type = int32 }
end

rows.weights = terralib.newlist()
rows.slot = {}
rows.num_slots = 0
rows.layer_matrices = terralib.newlist()

local function type_of(row)
  return row.is_vector and &float or row.block.is_repeated and Matrices or C.glm_matrix
end

local function add_weight(row, block)
  row.field, row.block, row.holder = table.remove(row, 1), block, block.name == "model" and ModelWeights or LayerWeights
  rows.weights:insert(row)
  row.number = #rows.weights - 1
  if not rows.slot[row.field] then
    rows.slot[row.field] = rows.num_slots
    rows.num_slots = rows.num_slots + 1
    row.holder.entries:insert { field = row.field, type = type_of(row) }
    if not row.is_vector and row.holder == LayerWeights and block.name ~= "prediction" then
      rows.layer_matrices:insert(row.field)
    end
  end
end

local repeated_block

for number, block in ipairs(rows.blocks) do
  repeated_block = block.is_repeated and number - 1 or repeated_block
  block.number, block.prefix = number - 1, block.prefix or "model.layers.%d."
  for _, row in ipairs(block) do
    add_weight(row, block)
  end
end

local struct Weight {
  block : int32
  slot : int32
  offset : int64
  is_vector : bool
  is_repeated : bool
  is_present : bool
  has_bias : bool
  fp8 : int32
  dtype : int32
  role : int32
  rows : int32
  row_split : int32
  columns : int32
  column_split : int32
  draw : float
  alike : int32
  alike_names : rawstring
}
rows.Weight = Weight

local struct Source {
  name : rawstring
  suffix : rawstring
  weight : int32
  row_begin : int32
  rows : int32
  is_copy : bool
}
rows.Source = Source

local function is_listed_before(a, b)
  if a.block ~= b.block then
    return a.block.number < b.block.number
  end
  return (a.listed or 1) < (b.listed or 1) or ((a.listed or 1) == (b.listed or 1) and a.number < b.number)
end

local sources = terralib.newlist()
local listed_rows = rows.weights:map(function(row) return row end)
table.sort(listed_rows, is_listed_before)
for _, row in ipairs(listed_rows) do
  for _, source in ipairs(row) do
    sources:insert { row = row, name = row.block.prefix .. source[1], size = source[2], suffix = source.suffix or ".weight", tied_to = source.tied_to }
  end
end

rows.num_weights, rows.num_sources, rows.num_blocks = #rows.weights, #sources, #rows.blocks

local struct Table {
  weights : Weight[rows.num_weights]
  sources : Source[rows.num_sources]
}
rows.Table = Table

local function describe(row, c)
  local columns = row.columns.value(c)
  return `Weight {
    block = [row.block.number],
    slot = [rows.slot[row.field]],
    offset = [terralib.offsetof(row.holder, row.field)],
    is_vector = [row.is_vector or false],
    is_repeated = [row.block.is_repeated or false],
    is_present = [(row.when or always)(c)],
    has_bias = [row.bias and row.bias(c) or false],
    fp8 = [rows.fp8[row.fp8]],
    dtype = [row.dtype or rows.config_dtype],
    role = [row.role or C.GLM_MATRIX_LINEAR],
    rows = 0,
    row_split = [row[1][2].split],
    columns = columns,
    column_split = [row.columns.split],
    draw = [row.draw or `[float](1.0 / C.sqrt([double](columns)))],
    alike = [row.alike and rows.slot[row.alike[1]] or rows.no_slot],
    alike_names = [row.alike and row.alike[2] or ""],
  }
end

local function is_copy(source, c)
  if source.tied_to then
    return `c.tie_word_embeddings
  end
  return false
end

terra Table:fill(c : &ModelConfig)
  escape
    for _, row in ipairs(rows.weights) do
      emit quote self.weights[ [row.number] ] = [describe(row, c)] end
    end
    for index, source in ipairs(sources) do
      emit quote
        var weight = &self.weights[ [source.row.number] ]
        self.sources[ [index - 1] ] = Source {
          name = terralib.select([is_copy(source, c)], [source.tied_to or source.name], [source.name]),
          suffix = [source.suffix],
          weight = [source.row.number],
          row_begin = weight.rows,
          rows = [source.size.value(c)],
          is_copy = [is_copy(source, c)],
        }
        weight.rows = weight.rows + self.sources[ [index - 1] ].rows
      end
    end
  end
end

terra rows.num_copies(c : &ModelConfig, block : int32) : int32
  return terralib.select(block == [repeated_block], c.num_experts, 1)
end

terra rows.has_block(c : &ModelConfig, block : int32, layer : int32) : bool
  escape
    for _, block_row in ipairs(rows.blocks) do
      emit quote
        if block == [block_row.number] then
          return [block_row.is_in(c, layer)]
        end
      end
    end
  end
  return false
end

return rows
