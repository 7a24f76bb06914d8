local abi = require("terra.base.abi")
local config = require("terra.checkpoint.config")
local containers = require("terra.base.containers")
local quantisation = require("terra.checkpoint.quantisation")
local status = require("terra.base.status")
local text = require("terra.base.text")
local C = abi.C
local ModelConfig = config.ModelConfig

local modules = {}

modules.slots = {
  "qkv",
  "output",
  "gate_up",
  "down",
  "router",
  "experts_gate_up",
  "experts_down",
  "embedding",
  "head",
  "other",
}
modules.slot = {}
for index, name in ipairs(modules.slots) do
  modules.slot[name] = index - 1
end
modules.num_slots = #modules.slots

modules.vector = 0
modules.linear = 1
modules.plain_matrix = 2
modules.selection_bias = 3

local struct Module {
  name : rawstring
  kind : int32
  layer : int32
  slot : int32
  rows : int32
  columns : int32
  has_bias : bool
  is_quantised : bool
  is_skipped : bool
}
modules.Module = Module

local struct ModuleList {
  list : containers.Vector(Module)
  arena : text.Arena
  config : &ModelConfig
  quantisation : &quantisation.Quantisation
  has_failed : bool
  is_skipping : bool
}
modules.ModuleList = ModuleList

terra ModuleList:init()
  self.list:init()
  self.arena:init()
  self.has_failed = false
  self.is_skipping = false
end

terra ModuleList:free()
  self.list:free()
  self.arena:free()
end

terra ModuleList:add(name : rawstring, kind : int32, layer : int32, slot : int32, rows : int32, columns : int32, has_bias : bool)
  var module : Module
  module.name = self.arena:copy(text.slice(name))
  module.kind = kind
  module.layer = layer
  module.slot = slot
  module.rows = rows
  module.columns = columns
  module.has_bias = has_bias
  module.is_skipped = self.is_skipping
  module.is_quantised = kind == modules.linear and self.quantisation:covers(name)
  if module.name == nil or not self.list:push(module) then
    self.has_failed = true
  end
end

local function vector(name, size, condition)
  return { name = name, kind = "vector", slot = "other", rows = size, columns = function() return 1 end, condition = condition }
end

local function matrix(kind, name, slot, rows, columns, options)
  options = options or {}
  return { name = name, kind = kind, slot = slot, rows = rows, columns = columns, bias = options.bias, condition = options.condition }
end

local function linear(...)
  return matrix("linear", ...)
end

local function hidden(c) return `c.hidden_size end
local function query_rows(c) return `c.num_heads * c.head_dim end
local function key_rows(c) return `c.num_kv_heads * c.head_dim end
local function head_dim(c) return `c.head_dim end
local function dense_width(c) return `c.intermediate_size end
local function expert_width(c) return `c.moe_intermediate_size end
local function shared_width(c) return `c:shared_width() end
local function num_experts(c) return `c.num_experts end
local function vocabulary(c) return `c.vocab_size end
local function has_bias(c) return `c.attention_bias end
local function has_qk_norm(c) return `c.use_qk_norm end
local function has_shared(c) return `c.num_shared_experts > 0 end
local function has_own_head(c) return `not c.tie_word_embeddings end

local function mlp(prefix, slots, width, condition)
  return {
    linear(prefix .. ".gate_proj", slots.gate_up, width, hidden, { condition = condition }),
    linear(prefix .. ".up_proj", slots.gate_up, width, hidden, { condition = condition }),
    linear(prefix .. ".down_proj", slots.down, hidden, width, { condition = condition }),
  }
end

local dense_slots = { gate_up = "gate_up", down = "down" }
local expert_slots = { gate_up = "experts_gate_up", down = "experts_down" }

modules.tables = {
  attention = {
    vector("input_layernorm", hidden),
    linear("self_attn.q_proj", "qkv", query_rows, hidden, { bias = has_bias }),
    linear("self_attn.k_proj", "qkv", key_rows, hidden, { bias = has_bias }),
    linear("self_attn.v_proj", "qkv", key_rows, hidden, { bias = has_bias }),
    linear("self_attn.o_proj", "output", hidden, query_rows),
    vector("self_attn.q_norm", head_dim, has_qk_norm),
    vector("self_attn.k_norm", head_dim, has_qk_norm),
    vector("post_attention_layernorm", hidden),
  },
  dense = mlp("mlp", dense_slots, dense_width),
  router = {
    matrix("plain_matrix", "mlp.gate", "router", num_experts, hidden),
    { name = "mlp.gate", kind = "selection_bias", slot = "other", rows = num_experts, columns = function() return 1 end },
  },
  expert = mlp("mlp.experts.%d", expert_slots, expert_width),
  shared = mlp("mlp.shared_experts", dense_slots, shared_width, has_shared),
  prediction = {
    vector("enorm", hidden),
    vector("hnorm", hidden),
    linear("eh_proj", "other", hidden, function(c) return `2 * c.hidden_size end),
    vector("shared_head.norm", hidden),
  },
  model = {
    matrix("plain_matrix", "model.embed_tokens", "embedding", vocabulary, hidden),
    vector("model.norm", hidden),
    linear("lm_head", "head", vocabulary, hidden, { condition = has_own_head }),
  },
}

local function adder(entries, prefix)
  return terra(self : &ModuleList, layer : int32, expert : int32)
    var c = self.config
    var name : int8[128]
    escape
      for _, entry in ipairs(entries) do
        local condition = entry.condition and entry.condition(c) or `true
        local bias = entry.bias and entry.bias(c) or `false
        local rows, columns = entry.rows(c), entry.columns(c)
        local format = prefix .. entry.name
        emit quote
          if condition then
            escape
              if prefix == "" then
                emit quote C.snprintf(&name[0], 128, "%s", format) end
              else
                emit quote C.snprintf(&name[0], 128, format, layer, expert) end
              end
            end
            self:add(&name[0], [modules[entry.kind]], layer, [modules.slot[entry.slot]], rows, columns, bias)
          end
        end
      end
    end
  end
end

local in_layer = "model.layers.%d."
local add_model = adder(modules.tables.model, "")
local add_attention = adder(modules.tables.attention, in_layer)
local add_dense = adder(modules.tables.dense, in_layer)
local add_router = adder(modules.tables.router, in_layer)
local add_expert = adder(modules.tables.expert, in_layer)
local add_shared = adder(modules.tables.shared, in_layer)
local add_prediction = adder(modules.tables.prediction, in_layer)

terra ModuleList:add_layer(layer : int32)
  add_attention(self, layer, 0)
  if layer < self.config.first_k_dense_replace then
    add_dense(self, layer, 0)
    return
  end
  add_router(self, layer, 0)
  for expert = 0, self.config.num_experts do
    add_expert(self, layer, expert)
  end
  add_shared(self, layer, 0)
end

terra ModuleList:build(
  model : &ModelConfig,
  rules : &quantisation.Quantisation,
  message : &C.glm_message
) : int32
  self.config = model
  self.quantisation = rules
  add_model(self, model.num_layers, 0)
  for layer = 0, model.num_layers do
    self:add_layer(layer)
  end
  self.is_skipping = true
  for extra = 0, model.num_nextn_predict_layers do
    self:add_layer(model.num_layers + extra)
    add_prediction(self, model.num_layers + extra, 0)
  end
  if self.has_failed then
    return status.fail(message, C.GLM_OUT_OF_MEMORY, "not enough host memory to list the weights of %d layers", model.num_layers)
  end
  return C.GLM_OK
end

terra Module:weight_dtype(plain_dtype : int32) : int32
  if self.is_quantised then
    return C.GLM_DTYPE_F8_E4M3
  elseif self.kind == modules.selection_bias then
    return C.GLM_DTYPE_F32
  end
  return plain_dtype
end

terra Module:num_elements() : int64
  return [int64](self.rows) * self.columns
end

return modules
