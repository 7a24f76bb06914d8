local abi = require("terra.base.abi")
local safetensors = require("terra.checkpoint.safetensors")
local status = require("terra.base.status")
local weights = require("terra.model.weights")
local C = abi.C
local TensorView = safetensors.TensorView

local first_tensor = weights.layer_prefix .. "%d.eh_proj.weight"
local name_capacity = 160

local terra are_alike(one : &TensorView, other : &TensorView) : bool
  if other == nil or one.dtype ~= other.dtype or one.bytes ~= other.bytes or one.num_dimensions ~= other.num_dimensions then
    return false
  end
  for i = 0, one.num_dimensions do
    if one.shape[i] ~= other.shape[i] then
      return false
    end
  end
  return C.memcmp(one.data, other.data, one.bytes) == 0
end

return function(Model)
  terra Model:promises_prediction() : bool
    return self.config.num_nextn_predict_layers > 0
  end

  terra Model:first_prediction_tensor(name : rawstring) : rawstring
    C.snprintf(name, name_capacity, first_tensor, self.config.num_layers)
    return name
  end

  terra Model:holds_prediction() : bool
    var name : int8[name_capacity]
    return self:promises_prediction() and (not self.has_weights or self.checkpoint:find(self:first_prediction_tensor(&name[0])) ~= nil)
  end

  terra Model:has_own(tensor : rawstring, original : rawstring) : bool
    var name : int8[name_capacity]
    C.snprintf(&name[0], name_capacity, [weights.layer_prefix .. "%d.%s.weight"], self.config.num_layers, tensor)
    var view = self.checkpoint:find(&name[0])
    C.snprintf(&name[0], name_capacity, "%s.weight", original)
    return view ~= nil and not are_alike(view, self.checkpoint:find(&name[0]))
  end

  terra Model:load_prediction()
    var c = &self.config
    c.num_prediction_layers = 1
    escape
      for _, copy in ipairs(weights.prediction_copies) do
        emit quote
          var original = terralib.select(c.tie_word_embeddings, [copy.original_if_tied], [copy.original])
          c.[copy.is_own] = self.has_weights and self:has_own([copy[1][1]], original)
        end
      end
    end
  end

  terra Model:refuse_prediction(message : &C.glm_message) : int32
    var name : int8[name_capacity]
    status.refuse(
      message, not self:promises_prediction(),
      "speculate is mtp, but %s has no prediction layer (num_nextn_predict_layers is 0); use speculate lookup:N", self.config_path
    )
    return status.fail(
      message, C.GLM_INVALID_ARGUMENT,
      "%s: speculate is mtp, and config.json promises a prediction layer (num_nextn_predict_layers is %d), but %s lacks %s; use speculate lookup:N or files with this layer",
      self.directory, self.config.num_nextn_predict_layers, self.checkpoint:index_file(), self:first_prediction_tensor(&name[0])
    )
  end

  terra Model:choose_prediction(speculate : int32, message : &C.glm_message) : int32
    var needs_layer = speculate == C.ENGINE_SPECULATE_MTP
    if self:holds_prediction() then
      if needs_layer or speculate == C.ENGINE_SPECULATE_AUTO then
        self:load_prediction()
      end
    elseif needs_layer and not self.checkpoint.has_unsound_shard then
      return self:refuse_prediction(message)
    end
    return C.GLM_OK
  end
end
