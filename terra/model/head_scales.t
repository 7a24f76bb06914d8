local abi = require("terra.base.abi")
local safetensors = require("terra.checkpoint.safetensors")
local C = abi.C
local TensorView = safetensors.TensorView

local head_scales = {}

local function finder(names)
  return terra(checkpoint : &safetensors.Checkpoint, layer : int32) : &TensorView
    var name : int8[128]
    escape
      for _, each in ipairs(names) do
        emit quote
          C.snprintf(&name[0], 128, ["model.layers.%d.self_attn." .. each], layer)
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

head_scales.find_key = finder { "k_scale", "k_proj.k_scale" }
head_scales.find_value = finder { "v_scale", "v_proj.v_scale" }

return head_scales
