local abi = require("terra.base.abi")
local fields = require("terra.checkpoint.config_fields")
local json = require("terra.base.json")
local printable = require("terra.base.printable")
local reader = require("terra.checkpoint.config_reader")
local status = require("terra.base.status")
local text = require("terra.base.text")
local C = abi.C
local ConfigReader = reader.ConfigReader

local config = {
  model_type = "glm4_moe",
  default_architecture = "Glm4MoeForCausalLM",
  file_name = "config.json",
  generation_file_name = "generation_config.json",
  max_eos_tokens = C.ENGINE_MAX_EOS_TOKENS,
  max_experts = 2 ^ 20,
}

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
  plain_dtype : int32
  intermediate_size : int32
  first_k_dense_replace : int32
  num_experts : int32
  top_k : int32
  num_shared_experts : int32
  moe_intermediate_size : int32
  normalise_top_k : bool
  routed_scaling_factor : float
  num_nextn_predict_layers : int32
  num_prediction_layers : int32
  has_prediction_head : bool
  has_prediction_embedding : bool
  num_cut_layers : int32
  num_eos_tokens : int32
  eos_tokens : int32[config.max_eos_tokens]
}
config.ModelConfig = ModelConfig

terra ModelConfig:shared_width() : int32
  return self.num_shared_experts * self.moe_intermediate_size
end

terra ModelConfig:has_dense_layers() : bool
  return self.first_k_dense_replace > 0
end

terra ModelConfig:has_moe_layers() : bool
  return self.first_k_dense_replace < self.num_layers + self.num_prediction_layers
end

terra ModelConfig:stored_layer(layer : int32) : int32
  return terralib.select(layer >= self.num_layers, layer + self.num_cut_layers, layer)
end

require("terra.checkpoint.config_foreign")(ModelConfig)

local terra read_architecture(self : &ModelConfig, from : &ConfigReader) : int32
  status.try(from:expect_string("model_type", [config.model_type]))
  text.copy_into(&self.architecture[0], 64, text.slice([config.default_architecture]))
  var names = from:find("architectures")
  if names == nil then
    return C.GLM_OK
  end
  var first = from.document:child(names)
  if names.kind ~= json.array_kind or first == nil or first.kind ~= json.string_kind then
    return from:wrong_kind("architectures", "a list of names", names)
  end
  printable.copy_into(&self.architecture[0], 64, first.string)
  return C.GLM_OK
end

local terra read_integers(self : &ModelConfig, from : &ConfigReader) : int32
  escape
    for _, entry in ipairs(fields.integers) do
      if entry.otherwise then
        emit quote
          status.try(from:optional_integer([entry.key], [entry.least], [entry.most], [entry.otherwise], &self.[entry.field]))
        end
        if entry.null then
          emit quote
            if from:is_null([entry.key]) then
              self.[entry.field] = [entry.null]
            end
          end
        end
      else
        emit quote
          status.try(from:integer([entry.key], [entry.least], [entry.most], &self.[entry.field]))
        end
      end
    end
  end
  return C.GLM_OK
end

local terra read_flags(self : &ModelConfig, from : &ConfigReader) : int32
  escape
    for _, entry in ipairs(fields.flags) do
      emit quote
        status.try(from:flag([entry.key], [entry.otherwise], &self.[entry.field]))
      end
    end
    for _, key in ipairs(fields.ones) do
      emit quote
        status.try(from:expect_integer([key], 1))
      end
    end
  end
  return C.GLM_OK
end

local terra read_reals(self : &ModelConfig, from : &ConfigReader) : int32
  var epsilon, scaling = 0.0, 0.0
  status.try(from:real("rms_norm_eps", 1e-12, 0.1, &epsilon))
  status.try(from:optional_real("routed_scaling_factor", 1e-6, 1e6, 1.0, &scaling))
  self.rms_norm_eps = [float](epsilon)
  self.routed_scaling_factor = [float](scaling)
  return C.GLM_OK
end

local terra find_rotation(from : &ConfigReader, key : rawstring, rotation : &ConfigReader) : int32
  var node = from:find(key)
  if node == nil then
    return C.GLM_OK
  end
  if node.kind ~= json.object_kind then
    return from:wrong_kind(key, "an object", node)
  end
  if node.num_children > 0 then
    @rotation = from:inside(text.slice(key), node)
  end
  return C.GLM_OK
end

local terra check_rotation_kind(rotation : &ConfigReader) : int32
  var key = "rope_type"
  if rotation:find(key) == nil then
    key = "type"
  end
  if rotation:find(key) ~= nil then
    status.try(rotation:expect_string(key, "default"))
  end
  var child = rotation.document:child(rotation.object)
  while child ~= nil do
    if child.kind == json.object_kind then
      return status.fail(
        rotation.message, C.GLM_NOT_SUPPORTED, "%s: %s%.*s: separate RoPE parameters per layer type are not supported",
        rotation.path, &rotation.prefix[0], [int32](child.key.size), child.key.data
      )
    end
    child = rotation.document:next(child)
  end
  return C.GLM_OK
end

local terra holder(key : rawstring, rotation : &ConfigReader, from : &ConfigReader) : &ConfigReader
  return terralib.select(rotation.document:find(rotation.object, key) == nil, from, rotation)
end

local terra read_rotation(self : &ModelConfig, from : &ConfigReader) : int32
  var rotation = @from
  status.try(find_rotation(from, "rope_parameters", &rotation))
  status.try(find_rotation(from, "rope_scaling", &rotation))
  if rotation.object ~= from.object then
    status.try(check_rotation_kind(&rotation))
  end
  var factor = 0.5
  status.try(holder("rope_theta", &rotation, from):real("rope_theta", 1.0, 1e12, &self.rope_theta))
  var with_factor = holder("partial_rotary_factor", &rotation, from)
  if from.document:find(with_factor.object, "partial_rotary_factor") ~= nil then
    status.try(with_factor:real("partial_rotary_factor", 1e-3, 1.0, &factor))
  end
  self.rotary_dim = [int32](self.head_dim * factor)
  return C.GLM_OK
end

local terra has_eos_token(self : &ModelConfig, token : int64) : bool
  for i = 0, self.num_eos_tokens do
    if self.eos_tokens[i] == token then
      return true
    end
  end
  return false
end

terra ModelConfig:add_eos_token(from : &ConfigReader, node : &json.Node) : int32
  status.try(from:check_integer("eos_token_id", node, 0, self.vocab_size - 1))
  if has_eos_token(self, node.integer) then
    return C.GLM_OK
  end
  if self.num_eos_tokens >= config.max_eos_tokens then
    return status.fail(from.message, C.GLM_NOT_SUPPORTED, "%s: eos_token_id lists more than the maximum of %d tokens", from.path, [int32](config.max_eos_tokens))
  end
  self.eos_tokens[self.num_eos_tokens] = [int32](node.integer)
  self.num_eos_tokens = self.num_eos_tokens + 1
  return C.GLM_OK
end

terra ModelConfig:add_eos_tokens(from : &ConfigReader) : int32
  var node = from:find("eos_token_id")
  if node == nil then
    return C.GLM_OK
  end
  if node.kind ~= json.array_kind then
    return self:add_eos_token(from, node)
  end
  var child = from.document:child(node)
  while child ~= nil do
    status.try(self:add_eos_token(from, child))
    child = from.document:next(child)
  end
  return C.GLM_OK
end

local terra read_dtype(self : &ModelConfig, from : &ConfigReader) : int32
  self.plain_dtype = C.GLM_DTYPE_BF16
  var key = "torch_dtype"
  if from:find(key) == nil then
    key = "dtype"
  end
  var node = from:find(key)
  if node ~= nil and node.kind == json.string_kind and text.equals(node.string, "float32") then
    self.plain_dtype = C.GLM_DTYPE_F32
  elseif node ~= nil and (node.kind ~= json.string_kind or not text.equals(node.string, "bfloat16")) then
    return from:refuse(key, node, "\"bfloat16\" or \"float32\"")
  end
  return C.GLM_OK
end

local terra check_relations(self : &ModelConfig, from : &ConfigReader) : int32
  if self.num_heads % self.num_kv_heads ~= 0 then
    return status.fail(
      from.message, C.GLM_INVALID_CHECKPOINT, "%s: num_attention_heads %d is not a multiple of num_key_value_heads %d",
      from.path, self.num_heads, self.num_kv_heads
    )
  end
  if self.rotary_dim < 2 or self.rotary_dim % 2 ~= 0 then
    return status.fail(
      from.message, C.GLM_INVALID_CHECKPOINT, "%s: partial_rotary_factor rotates %d of the %d dimensions of each head; expected an even number of at least 2",
      from.path, self.rotary_dim, self.head_dim
    )
  end
  if self.top_k > self.num_experts then
    return status.fail(
      from.message, C.GLM_INVALID_CHECKPOINT, "%s: num_experts_per_tok %d exceeds n_routed_experts %d",
      from.path, self.top_k, self.num_experts
    )
  end
  return C.GLM_OK
end

local terra check_extent(self : &ModelConfig, from : &ConfigReader) : int32
  var num_experts = [int64](self.num_layers + self.num_nextn_predict_layers) * self.num_experts
  if num_experts > config.max_experts then
    return status.fail(
      from.message, C.GLM_NOT_SUPPORTED, "%s: num_hidden_layers %d and n_routed_experts %d give %lld experts; the maximum is %lld",
      from.path, self.num_layers, self.num_experts, num_experts, [int64](config.max_experts)
    )
  end
  return C.GLM_OK
end

local terra settle_head_dim(self : &ModelConfig, from : &ConfigReader) : int32
  if self.head_dim ~= 0 then
    return C.GLM_OK
  end
  if self.hidden_size % self.num_heads ~= 0 then
    return status.fail(
      from.message, C.GLM_INVALID_CHECKPOINT, "%s: head_dim is missing, and hidden_size %d is not a multiple of num_attention_heads %d",
      from.path, self.hidden_size, self.num_heads
    )
  elseif self.hidden_size / self.num_heads < 2 then
    return status.fail(
      from.message, C.GLM_INVALID_CHECKPOINT,
      "%s: head_dim is missing, and hidden_size %d divided by num_attention_heads %d is %d; expected 2 or more",
      from.path, self.hidden_size, self.num_heads, self.hidden_size / self.num_heads
    )
  end
  self.head_dim = self.hidden_size / self.num_heads
  return C.GLM_OK
end

terra ModelConfig:read(from : &ConfigReader) : int32
  C.memset(self, 0, [terralib.sizeof(ModelConfig)])
  status.try(read_architecture(self, from))
  status.try(read_integers(self, from))
  status.try(read_flags(self, from))
  status.try(read_reals(self, from))
  status.try(settle_head_dim(self, from))
  status.try(read_rotation(self, from))
  status.try(self:add_eos_tokens(from))
  status.try(read_dtype(self, from))
  if self.first_k_dense_replace > self.num_layers then
    self.first_k_dense_replace = self.num_layers
  end
  self.is_quantised = from:find("quantization_config") ~= nil
  status.try(check_extent(self, from))
  status.try(check_relations(self, from))
  return self:check_foreign(from)
end

local terra parse_object(document : &json.Document, contents : text.Slice, path : rawstring, message : &C.glm_message) : int32
  status.try(document:parse(contents, path, message))
  status.fail_if(message, document:root().kind ~= json.object_kind, C.GLM_INVALID_CHECKPOINT, "%s: expected an object, got %s", path, json.kind_name(document:root().kind))
  return C.GLM_OK
end

terra config.parse(document : &json.Document, contents : text.Slice, path : rawstring, target : &ModelConfig, message : &C.glm_message) : int32
  status.try(parse_object(document, contents, path, message))
  var from = reader.open(document, path, message)
  return target:read(&from)
end

terra config.parse_generation(document : &json.Document, contents : text.Slice, path : rawstring, target : &ModelConfig, message : &C.glm_message) : int32
  status.try(parse_object(document, contents, path, message))
  var from = reader.open(document, path, message)
  return target:add_eos_tokens(&from)
end

return config
