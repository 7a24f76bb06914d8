local abi = require("terra.base.abi")
local head_scales = require("terra.model.head_scales")
local safetensors = require("terra.checkpoint.safetensors")
local weights = require("terra.model.weights")
local C = abi.C
local TensorView = safetensors.TensorView

local function scan(word, exponent, magnitude)
  return terra(data : &uint8, count : int64, is_finite : &bool) : int64
    for i = 0, count do
      var bits = terralib.attrload([&word](data) + i, { align = 1 })
      if (bits and exponent) == exponent then
        @is_finite = false
        return i
      end
      if (bits and magnitude) == 0 or bits > magnitude then
        @is_finite = true
        return i
      end
    end
    return -1
  end
end

local scan_bf16 = scan(uint16, 0x7F80, 0x7FFF)
local scan_f32 = scan(uint32, 0x7F800000, 0x7FFFFFFF)

local terra value_at(view : &TensorView, index : int64) : double
  var bits : uint32
  if view.dtype == C.GLM_DTYPE_F32 then
    bits = terralib.attrload([&uint32](view.data) + index, { align = 1 })
  else
    bits = [uint32](terralib.attrload([&uint16](view.data) + index, { align = 1 })) << 16
  end
  return @[&float](&bits)
end

return function(Validator, complain)
  terra Validator:check_head_scale(layer : int32, view : &TensorView, name : rawstring)
    if view == nil then
      if layer < self.config.num_layers and not self.checkpoint.has_unsound_shard then
        var missing : int8[128]
        C.snprintf(&missing[0], 128, [weights.layer_prefix .. "%d.%s"], layer, name)
        complain(self, self.checkpoint.index_file, &missing[0], "the tensor is missing")
      end
      return
    end
    view.is_consumed = true
    self:check_plain(view)
    var count = view:num_elements()
    if count ~= 1 and count ~= self.config.num_kv_heads then
      var shape : int8[128]
      view:describe_shape(&shape[0], 128)
      complain(
        self, self.checkpoint:file_of(view), view.name, "expected one scale, or one for each of the %d KV heads, got shape %s",
        self.config.num_kv_heads, &shape[0]
      )
    end
  end

  terra Validator:check_head_scales()
    self.has_head_scales = head_scales.find.key_scale(self.checkpoint, 0) ~= nil
    if not self.has_head_scales then
      return
    end
    for layer = 0, weights.num_loaded_layers(self.config) do
      escape
        for _, scale in ipairs(weights.head_scales) do
          emit quote self:check_head_scale(layer, [head_scales.find[scale.field]](self.checkpoint, layer), [scale.names[1]]) end
        end
      end
    end
  end

  terra Validator:check_scale_values(view : &TensorView)
    var is_finite, index = true, [int64](-1)
    if view == nil then
      return
    elseif view.dtype == C.GLM_DTYPE_F32 then
      index = scan_f32(view.data, view:num_elements(), &is_finite)
    elseif view.dtype == C.GLM_DTYPE_BF16 then
      index = scan_bf16(view.data, view:num_elements(), &is_finite)
    end
    if index < 0 then
      return
    end
    var wanted = "greater than zero"
    if not is_finite then
      wanted = "finite"
    end
    complain(self, self.checkpoint:file_of(view), view.name, "the scale for row %lld is %g; scales must be %s", index, value_at(view, index), wanted)
  end

  terra Validator:check_head_scale_values()
    for layer = 0, weights.num_loaded_layers(self.config) do
      escape
        for _, scale in ipairs(weights.head_scales) do
          emit quote self:check_scale_values([head_scales.find[scale.field]](self.checkpoint, layer)) end
        end
      end
    end
  end

  terra Validator:check_scales()
    if self.has_head_scales then
      self:check_head_scale_values()
    end
    for i = 0, self.list.list.size do
      self:check_scale_values(self.list.list:at(i).scale)
    end
  end
end
