local abi = require("terra.base.abi")
local config = require("terra.checkpoint.config")
local dtypes = require("terra.base.dtypes")
local layout = require("terra.model.layout")
local modules = require("terra.model.modules")
local problems = require("terra.checkpoint.problems")
local safetensors = require("terra.checkpoint.safetensors")
local text = require("terra.base.text")
local weights = require("terra.model.weights")
local C = abi.C
local Module = modules.Module
local TensorView = safetensors.TensorView

local validate = {}

local struct Validator {
  config : &config.ModelConfig
  list : &modules.ModuleList
  checkpoint : &safetensors.Checkpoint
  types : &layout.WeightTypes
  num_parameters : int64
  num_skipped_parameters : int64
  tensor_bytes : int64
  skipped_tensor_bytes : int64
  has_head_scales : bool
  tied_head : &TensorView
  tied_table : &TensorView
}

local complain = macro(function(self, file, tensor, format, ...)
  local arguments = terralib.newlist { ... }
  return quote
    problems.add(&self.checkpoint.problems, C.GLM_INVALID_CHECKPOINT, file, tensor, format, [arguments])
  end
end)

terra Validator:take(name : rawstring) : &TensorView
  var view = self.checkpoint:find(name)
  if view ~= nil then
    view.is_consumed = true
  elseif not self.checkpoint.has_unsound_shard then
    complain(self, self.checkpoint.index_file, name, "the tensor is missing")
  end
  return view
end

terra Validator:check_shape(view : &TensorView, rows : int64, columns : int64) : bool
  if columns == 0 and view.num_dimensions == 1 and view.shape[0] == rows then
    return true
  elseif view.num_dimensions == 2 and view.shape[0] == rows and view.shape[1] == terralib.select(columns == 0, [int64](1), columns) then
    return true
  end
  var shape : int8[128]
  view:describe_shape(&shape[0], 128)
  if columns == 0 then
    complain(self, self.checkpoint:file_of(view), view.name, "expected shape [%lld] according to config.json, got %s", rows, &shape[0])
  else
    complain(
      self, self.checkpoint:file_of(view), view.name, "expected shape [%lld, %lld] according to config.json, got %s",
      rows, columns, &shape[0]
    )
  end
  return false
end

terra Validator:check_plain(view : &TensorView) : bool
  if view.dtype == C.GLM_DTYPE_F32 or view.dtype == C.GLM_DTYPE_BF16 then
    return true
  end
  complain(self, self.checkpoint:file_of(view), view.name, "expected dtype BF16 or F32, got %s", dtypes.name(view.dtype))
  return false
end

terra Validator:check_vector(name : rawstring, rows : int64) : &TensorView
  var view = self:take(name)
  if view ~= nil and self:check_shape(view, rows, 0) then
    self:check_plain(view)
  end
  return view
end

local terra join(target : rawstring, name : rawstring, suffix : rawstring) : rawstring
  C.snprintf(target, 160, "%s%s", name, suffix)
  return target
end

terra Validator:check_quantisation(module : &Module, view : &TensorView) : bool
  var file = self.checkpoint:file_of(view)
  var is_quantised = view.dtype == C.GLM_DTYPE_F8_E4M3
  if is_quantised and module.weight.fp8 == [weights.fp8.refused] then
    complain(self, file, view.name, "FP8 weights are not supported for %s", module.name)
    return false
  end
  if is_quantised and not self.config.is_quantised then
    complain(self, file, view.name, "the weight is F8_E4M3, but config.json has no quantization_config")
    return false
  end
  if is_quantised and not module.is_quantised then
    complain(self, file, view.name, "the weight is F8_E4M3, but quantization_config in config.json leaves %s unquantized", module.name)
    return false
  end
  if module.is_quantised and not is_quantised then
    complain(
      self, file, view.name, "the weight is %s, but quantization_config in config.json says that %s is quantized",
      dtypes.name(view.dtype), module.name
    )
    return false
  end
  return true
end

terra Validator:unify(module : &Module, view : &TensorView)
  var known = self.types:at(module.layer, module.weight.slot)
  if @known == layout.unset then
    @known = view.dtype
  elseif @known ~= view.dtype then
    complain(
      self, self.checkpoint:file_of(view), view.name, "the weight is %s, but the weights fused with it in layer %d are %s",
      dtypes.name(view.dtype), module.layer, dtypes.name(@known)
    )
  end
end

terra Validator:check_alike(module : &Module, view : &TensorView)
  if module.weight.alike == [weights.no_slot] then
    return
  end
  var known = @self.types:at(module.layer, module.weight.alike)
  if known ~= layout.unset and known ~= view.dtype then
    complain(
      self, self.checkpoint:file_of(view), view.name, "the weight is %s, but %s in layer %d are %s",
      dtypes.name(view.dtype), module.weight.alike_names, module.layer, dtypes.name(known)
    )
  end
end

terra Validator:check_known(module : &Module, view : &TensorView) : bool
  if module.weight.fp8 ~= [weights.fp8.never] and view.dtype == C.GLM_DTYPE_F8_E4M3 then
    return true
  elseif not module.is_quantised or view.dtype == C.GLM_DTYPE_F32 or view.dtype == C.GLM_DTYPE_BF16 then
    return self:check_plain(view)
  end
  complain(
    self, self.checkpoint:file_of(view), view.name,
    "expected dtype F8_E4M3 (or BF16 or F32, if quantization_config in config.json leaves this linear layer unquantized), got %s",
    dtypes.name(view.dtype)
  )
  return false
end

terra Validator:check_matrix(module : &Module)
  var name : int8[160]
  var view = self:take(join(&name[0], module.name, module.source.suffix))
  module.view = view
  if view ~= nil and self:check_shape(view, module.source.rows, module.weight.columns) then
    if self:check_known(module, view) and self:check_quantisation(module, view) then
      self:unify(module, view)
      self:check_alike(module, view)
    end
  end
  if module.is_quantised then
    module.scale = self:check_vector(join(&name[0], module.name, ".weight_scale"), module.source.rows)
  end
  if module.weight.has_bias then
    module.bias = self:check_vector(join(&name[0], module.name, ".bias"), module.source.rows)
  end
end

terra Validator:tie(module : &Module)
  var name : int8[160]
  module.view = self.checkpoint:find(join(&name[0], module.name, module.source.suffix))
  if module.view ~= nil then
    @self.types:at(module.layer, module.weight.slot) = module.view.dtype
  end
  self.tied_table = module.view
  self.tied_head = self.checkpoint:find(join(&name[0], module.source.tied_name, module.source.suffix))
end

terra Validator:check_module(module : &Module)
  var name : int8[160]
  if module.source.is_copy then
    self:tie(module)
  elseif module.weight.is_vector then
    module.view = self:check_vector(join(&name[0], module.name, module.source.suffix), module.source.rows)
  else
    self:check_matrix(module)
  end
end

local layer_prefix = weights.layer_prefix

local terra layer_of(name : rawstring) : int32
  var size = [#layer_prefix]
  if C.strncmp(name, layer_prefix, size) ~= 0 or name[size] < [string.byte("0")] or name[size] > [string.byte("9")] then
    return -1
  end
  var last : rawstring
  var layer = C.strtol(name + size, &last, 10)
  if @last ~= [string.byte(".")] or layer < 0 or layer > 1000000 then
    return -1
  end
  return [int32](layer)
end

terra Validator:is_prediction_copy(view : &TensorView) : bool
  var name : int8[160]
  escape
    for _, copy in ipairs(weights.prediction_copies) do
      emit quote
        C.snprintf(&name[0], 160, [layer_prefix .. "%d." .. copy[1][1] .. ".weight"], self.config.num_layers)
        if C.strcmp(view.name, &name[0]) == 0 then
          return true
        end
      end
    end
  end
  return false
end

terra Validator:may_skip(view : &TensorView) : bool
  return view == self.tied_head or layer_of(view.name) >= weights.num_loaded_layers(self.config) or self:is_prediction_copy(view)
end

local terra is_parameter(view : &TensorView) : bool
  return not text.ends_with(text.slice(view.name), "_scale")
end

terra Validator:account(view : &TensorView)
  if not view.is_consumed then
    if self:may_skip(view) then
      view.is_skipped = true
    else
      complain(self, self.checkpoint:file_of(view), view.name, "the model does not use this tensor")
    end
  end
  var num_elements = terralib.select(is_parameter(view), view:num_elements(), [int64](0))
  if view.is_skipped then
    self.num_skipped_parameters = self.num_skipped_parameters + num_elements
    self.skipped_tensor_bytes = self.skipped_tensor_bytes + view.bytes
  else
    self.num_parameters = self.num_parameters + num_elements
    self.tensor_bytes = self.tensor_bytes + view.bytes
  end
end

require("terra.model.scales")(Validator, complain)

terra Validator:check_tied_head()
  var head, table = self.tied_head, self.tied_table
  if head == nil or table == nil or not self:check_shape(head, self.config.vocab_size, self.config.hidden_size) then
    return
  end
  if head.dtype ~= table.dtype then
    complain(
      self, self.checkpoint:file_of(head), head.name, "config.json ties this tensor to %s: expected the same dtype %s, got %s",
      table.name, dtypes.name(table.dtype), dtypes.name(head.dtype)
    )
  end
end

terra Validator:check_tied_values()
  var head, table = self.tied_head, self.tied_table
  var are_alike = head ~= nil and table ~= nil and head.dtype == table.dtype and head.bytes == table.bytes
  if are_alike and C.memcmp(head.data, table.data, table.bytes) ~= 0 then
    complain(self, self.checkpoint:file_of(head), head.name, "config.json ties this tensor to %s, but the two tensors have different values", table.name)
  end
end

terra Validator:check_values()
  self:check_scales()
  self:check_tied_values()
end

terra Validator:check_all()
  self.num_parameters = 0
  self.num_skipped_parameters = 0
  self.tensor_bytes = 0
  self.skipped_tensor_bytes = 0
  self.tied_head, self.tied_table = nil, nil
  for i = 0, self.list.list.size do
    var module = self.list.list:at(i)
    if not module.is_skipped then
      self:check_module(module)
    end
  end
  self:check_head_scales()
  self:check_tied_head()
  for i = 0, self.checkpoint.tensors.size do
    self:account(self.checkpoint.tensors:at(i))
  end
end

validate.Validator = Validator

return validate
