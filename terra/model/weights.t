local abi = require("terra.base.abi")
local config = require("terra.checkpoint.config")
local rows = require("terra.model.table")
local C = abi.C
local ModelConfig = config.ModelConfig

local weights = {
  split = rows.split,
  fp8 = rows.fp8,
  outside_layers = rows.outside_layers,
  head_scales = rows.head_scales,
  shared_sizes = rows.shared_sizes,
  layer_prefix = rows.layer_prefix,
  config_dtype = -1,
  no_slot = -1,
}

local struct Matrices {
  first : C.glm_matrix
  stride : int64
  scale_stride : int64
}
weights.Matrices = Matrices

local struct LayerWeights {
  is_moe : bool
  merges_shared : bool
}
weights.LayerWeights = LayerWeights

local struct ModelWeights {
  layers : &LayerWeights
  head_is_split : bool
  experts_begin : int32
}
weights.ModelWeights = ModelWeights

for _, shared_size in ipairs(rows.shared_sizes) do
  ModelWeights.entries:insert { field = shared_size.name, type = int32 }
end
for _, scale in ipairs(rows.head_scales) do
  ModelWeights.entries:insert { field = scale.field, type = &float }
end

weights.list = terralib.newlist()
weights.slot = {}
weights.num_slots = 0
weights.layer_matrices = terralib.newlist()
weights.prediction_copies = terralib.newlist()

local function type_of(row)
  return row.is_vector and &float or row.block.is_repeated and Matrices or C.glm_matrix
end

local function add_weight(row, block)
  row.field, row.block, row.holder = table.remove(row, 1), block, block.is_outside_layers and ModelWeights or LayerWeights
  weights.list:insert(row)
  row.number = #weights.list - 1
  if not weights.slot[row.field] then
    weights.slot[row.field] = weights.num_slots
    weights.num_slots = weights.num_slots + 1
    row.holder.entries:insert { field = row.field, type = type_of(row) }
    if row.copy_of then
      weights.prediction_copies:insert(row)
    elseif not row.is_vector and row.holder == LayerWeights then
      weights.layer_matrices:insert(row.field)
    end
  end
end

local repeated_block

for number, block in ipairs(rows.blocks) do
  repeated_block = block.is_repeated and number - 1 or repeated_block
  block.number, block.prefix = number - 1, block.is_outside_layers and "" or rows.layer_prefix .. "%d."
  for _, row in ipairs(block) do
    add_weight(row, block)
  end
end

for _, copy in ipairs(weights.prediction_copies) do
  local row = weights.list:find(function(other) return other.field == copy.copy_of end)
  copy.original, copy.original_if_tied = row[1][1], row[1].tied_to or row[1][1]
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
weights.Weight = Weight

local struct Source {
  name : rawstring
  suffix : rawstring
  weight : int32
  row_begin : int32
  rows : int32
  tied_name : rawstring
  is_copy : bool
}
weights.Source = Source

terra ModelWeights:field(weight : &Weight, layer : int32) : &int8
  if layer == [weights.outside_layers] then
    return [&int8](self) + weight.offset
  end
  return [&int8](&self.layers[layer]) + weight.offset
end

terra ModelWeights:vector(weight : &Weight, layer : int32) : &&float
  return [&&float](self:field(weight, layer))
end

terra ModelWeights:matrix(weight : &Weight, layer : int32, copy : int64) : C.glm_matrix
  var many = [&Matrices](self:field(weight, layer))
  var matrix = many.first
  if copy > 0 then
    matrix.data = [&int8](matrix.data) + copy * many.stride
    if matrix.row_scale ~= nil then
      matrix.row_scale = [&float]([&int8](matrix.row_scale) + copy * many.scale_stride)
    end
  end
  return matrix
end

local function is_listed_before(a, b)
  if a.block ~= b.block then
    return a.block.number < b.block.number
  end
  return (a.listed or 1) < (b.listed or 1) or ((a.listed or 1) == (b.listed or 1) and a.number < b.number)
end

local sources = terralib.newlist()
local listed_rows = weights.list:map(function(row) return row end)
table.sort(listed_rows, is_listed_before)
for _, row in ipairs(listed_rows) do
  for _, source in ipairs(row) do
    sources:insert { row = row, name = row.block.prefix .. source[1], size = source[2], suffix = source.suffix or ".weight", tied_to = source.tied_to }
  end
end

weights.num_weights, weights.num_sources, weights.num_blocks = #weights.list, #sources, #rows.blocks

local struct Table {
  weights : Weight[weights.num_weights]
  sources : Source[weights.num_sources]
}
weights.Table = Table

local function describe(row, c)
  local columns = row.columns.value(c)
  return `Weight {
    block = [row.block.number],
    slot = [weights.slot[row.field]],
    offset = [terralib.offsetof(row.holder, row.field)],
    is_vector = [row.is_vector or false],
    is_repeated = [row.block.is_repeated or false],
    is_present = [row.when(c)],
    has_bias = [row.bias and row.bias(c) or false],
    fp8 = [weights.fp8[row.fp8]],
    dtype = [row.dtype or weights.config_dtype],
    role = [row.role or C.GLM_MATRIX_LINEAR],
    rows = 0,
    row_split = [row[1][2].split],
    columns = columns,
    column_split = [row.columns.split],
    draw = [row.draw or `[float](1.0 / C.sqrt([double](columns)))],
    alike = [row.alike and weights.slot[row.alike[1]] or weights.no_slot],
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
    for _, row in ipairs(weights.list) do
      emit quote self.weights[ [row.number] ] = [describe(row, c)] end
    end
    for index, source in ipairs(sources) do
      emit quote
        var weight = &self.weights[ [source.row.number] ]
        self.sources[ [index - 1] ] = Source {
          name = terralib.select([is_copy(source, c)], [source.tied_to or source.name], [source.name]),
          tied_name = [source.name],
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

terra weights.num_listed_layers(c : &ModelConfig) : int32
  return c.num_layers + c.num_nextn_predict_layers
end

terra weights.num_loaded_layers(c : &ModelConfig) : int32
  return [rows.num_loaded_layers(c)]
end

terra weights.num_copies(c : &ModelConfig, block : int32) : int32
  return terralib.select(block == [repeated_block], c.num_experts, 1)
end

terra weights.has_block(c : &ModelConfig, block : int32, layer : int32) : bool
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

return weights
