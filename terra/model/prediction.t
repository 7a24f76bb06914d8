local abi = require("terra.base.abi")
local problems = require("terra.checkpoint.problems")
local safetensors = require("terra.checkpoint.safetensors")
local status = require("terra.base.status")
local weights = require("terra.model.weights")
local writer = require("terra.base.json_writer")
local C = abi.C
local TensorView = safetensors.TensorView

local name_capacity = 160
local layer_prefix = weights.layer_prefix .. "%d."
local first_tensor = "eh_proj"

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
  terra Model:name_prediction(target : rawstring, module : rawstring) : rawstring
    C.snprintf(target, name_capacity, [layer_prefix .. "%s.weight"], self.config.num_layers, module)
    return target
  end

  terra Model:promises_prediction() : bool
    return self.config.num_nextn_predict_layers > 0
  end

  terra Model:find_prediction(message : &C.glm_message) : int32
    var name : int8[name_capacity]
    self:name_prediction(&name[0], first_tensor)
    self.has_prediction = self:promises_prediction() and (not self.has_weights or self.checkpoint:find(&name[0]) ~= nil)
    if self:promises_prediction() and not self.has_prediction then
      status.try(self.checkpoint:find_beside(&name[0], &self.prediction_file, message))
      self.has_prediction = self.prediction_file ~= nil
    end
    return C.GLM_OK
  end

  terra Model:has_own(module : rawstring, original : rawstring) : bool
    var name : int8[name_capacity]
    var view = self.checkpoint:find(self:name_prediction(&name[0], module))
    C.snprintf(&name[0], name_capacity, "%s.weight", original)
    return view ~= nil and not are_alike(view, self.checkpoint:find(&name[0]))
  end

  terra Model:load_prediction(message : &C.glm_message) : int32
    var c = &self.config
    c.num_prediction_layers = 1
    if self.prediction_file ~= nil then
      var prefix : int8[name_capacity]
      C.snprintf(&prefix[0], name_capacity, layer_prefix, c.num_layers)
      status.try(self.checkpoint:read_beside(self.prediction_file, &prefix[0], message))
    end
    escape
      for _, copy in ipairs(weights.prediction_copies) do
        emit quote
          var original = terralib.select(c.tie_word_embeddings, [copy.original_if_tied], [copy.original])
          c.[copy.is_own] = self.has_weights and self:has_own([copy[1][1]], original)
        end
      end
    end
    return C.GLM_OK
  end

  terra Model:describe_lack(target : rawstring, capacity : int64) : rawstring
    var name : int8[name_capacity]
    C.snprintf(
      target, capacity, "config.json promises a prediction layer (num_nextn_predict_layers is %d), but %s lacks %s",
      self.config.num_nextn_predict_layers, self.checkpoint.index_file, self:name_prediction(&name[0], first_tensor)
    )
    return target
  end

  terra Model:refuse_prediction(message : &C.glm_message) : int32
    var lack : int8[problems.text_capacity]
    status.refuse(
      message, not self:promises_prediction(),
      "speculate is mtp, but %s has no prediction layer (num_nextn_predict_layers is 0); use speculate lookup:N", self.config_path
    )
    return status.fail(
      message, C.GLM_INVALID_ARGUMENT, "%s: speculate is mtp: %s; use speculate lookup:N or files with this layer",
      self.directory, self:describe_lack(&lack[0], problems.text_capacity)
    )
  end

  terra Model:choose_prediction(speculate : int32, message : &C.glm_message) : int32
    status.try(self:find_prediction(message))
    var needs_layer = speculate == C.ENGINE_SPECULATE_MTP
    if needs_layer and not self.has_prediction and not self.checkpoint.has_unsound_shard then
      return self:refuse_prediction(message)
    elseif self.has_prediction and (needs_layer or speculate == C.ENGINE_SPECULATE_AUTO) then
      return self:load_prediction(message)
    end
    return C.GLM_OK
  end

  terra Model:prediction_state() : rawstring
    if self.config.num_prediction_layers > 0 then
      return "loaded"
    elseif self.prediction_problem ~= nil then
      return "unusable"
    elseif self.has_prediction then
      return "available"
    end
    return terralib.select(self:promises_prediction(), "missing", "none")
  end

  terra Model:write_prediction(out : &writer.JsonWriter)
    var note : int8[problems.text_capacity]
    note[0] = 0
    if self.prediction_problem ~= nil then
      C.snprintf(&note[0], problems.text_capacity, "%s", self.prediction_problem)
    elseif self.prediction_file ~= nil then
      C.snprintf(&note[0], problems.text_capacity, "in %s, which %s does not list", self.prediction_file, self.checkpoint.index_file)
    elseif self:promises_prediction() and not self.has_prediction then
      self:describe_lack(&note[0], problems.text_capacity)
    end
    out:string_field("prediction_layer", self:prediction_state())
    out:string_field("prediction_layer_note", &note[0])
  end
end
