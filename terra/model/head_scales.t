local abi = require("terra.base.abi")
local safetensors = require("terra.checkpoint.safetensors")
local weights = require("terra.model.weights")
local C = abi.C
local TensorView = safetensors.TensorView

local head_scales = { find = {} }

local function finder(names)
  return terra(checkpoint : &safetensors.Checkpoint, layer : int32) : &TensorView
    var name : int8[128]
    escape
      for _, each in ipairs(names) do
        emit quote
          C.snprintf(&name[0], 128, [weights.layer_prefix .. "%d." .. each], layer)
          var view = checkpoint:find(&name[0])
          if view ~= nil then
            return view
          end
        end
      end
    end
    return nil
  end
end

for _, scale in ipairs(weights.head_scales) do
  head_scales.find[scale.field] = finder(scale.names)
end

return head_scales
