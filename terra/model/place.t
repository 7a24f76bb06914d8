local abi = require("terra.base.abi")
local dtypes = require("terra.base.dtypes")
local head_scales = require("terra.model.head_scales")
local layout = require("terra.model.layout")
local modules = require("terra.model.modules")
local safetensors = require("terra.checkpoint.safetensors")
local status = require("terra.base.status")
local weights = require("terra.model.weights")
local C = abi.C
local Layout = layout.Layout
local ModelWeights = layout.ModelWeights
local Module = modules.Module
local TensorView = safetensors.TensorView

local place = {}

local unit_scale = global(float, 1)

local struct Progress {
  report : C.engine_progress_function
  context : &opaque
  bytes_done : int64
  bytes_total : int64
}
place.Progress = Progress

terra Progress:add(bytes : int64)
  self.bytes_done = self.bytes_done + bytes
  if self.report ~= nil then
    self.report(self.context, self.bytes_done, self.bytes_total, "weights")
  end
end

local struct Placer {
  layout : &Layout
  model : &ModelWeights
  checkpoint : &safetensors.Checkpoint
  device : &C.glm_device
  progress : &Progress
  message : &C.glm_message
}

terra Placer:failed(code : int32, view : &TensorView) : int32
  var cause : C.glm_message
  cause.text[0] = 0
  self.layout.backend.device_message(self.device, &cause)
  return status.fail(
    self.message,
    code,
    "%s: cannot load %s on rank %d: %.600s",
    self.checkpoint:file_of(view),
    view.name,
    self.layout.rank,
    &cause.text[0]
  )
end

local terra element(view : &TensorView, index : int64) : &uint8
  return view.data + index * dtypes.bytes(view.dtype)
end

terra Placer:vector(view : &TensorView, first : int64, count : int64, destination : &float) : int32
  var args = C.glm_place_vector_args {
    source = element(view, first),
    source_dtype = view.dtype,
    count = [int32](count),
    destination = destination,
  }
  var code = self.layout.backend.place_vector(self.device, &args)
  if code ~= C.GLM_OK then
    return self:failed(code, view)
  end
  return C.GLM_OK
end

terra Placer:rows(module : &Module, matrix : &C.glm_matrix) : int32
  var weight, view = module.weight, module.view
  var num_rows = module.source.rows / self.layout:num_parts(weight.row_split)
  var source_row = [int64](self.layout:part(weight.row_split)) * num_rows
  var source_column = [int64](self.layout:part(weight.column_split)) * matrix.columns
  var args : C.glm_place_rows_args
  C.memset(&args, 0, sizeof(C.glm_place_rows_args))
  args.matrix = matrix
  args.row_begin = module.source.row_begin / self.layout:num_parts(weight.row_split)
  args.num_rows = num_rows
  args.source = element(view, source_row * weight.columns + source_column)
  args.source_row_stride = weight.columns
  if matrix.row_scale ~= nil then
    args.scale_source = element(module.scale, source_row)
    args.scale_dtype = module.scale.dtype
  end
  if matrix.bias ~= nil then
    args.bias_source = element(module.bias, source_row)
    args.bias_dtype = module.bias.dtype
  end
  var code = self.layout.backend.place_rows(self.device, &args)
  if code ~= C.GLM_OK then
    return self:failed(code, view)
  end
  self.progress:add([int64](num_rows) * matrix.columns * dtypes.bytes(view.dtype))
  return C.GLM_OK
end

terra Placer:module(module : &Module) : int32
  var weight, copy = module.weight, 0
  if weight.is_repeated then
    copy = module.expert - self.model.experts_begin
  end
  if module.is_skipped or copy < 0 or copy >= self.layout:num_copies(weight) then
    return C.GLM_OK
  elseif weight.is_vector then
    status.try(self:vector(module.view, 0, module.view:num_elements(), @self.model:vector(weight, module.layer)))
    self.progress:add(module.view.bytes)
    return C.GLM_OK
  end
  var matrix = self.model:matrix(weight, module.layer, copy)
  return self:rows(module, &matrix)
end

terra Placer:unit_scales(scales : &float, count : int32) : int32
  var unit = TensorView { data = [&uint8](&unit_scale), dtype = C.GLM_DTYPE_F32 }
  for head = 0, count do
    status.try(self:vector(&unit, 0, 1, scales + head))
  end
  return C.GLM_OK
end

terra Placer:head_scales(view : &TensorView, scales : &float) : int32
  var num_heads = self.model.num_local_kv_heads
  if view == nil then
    return self:unit_scales(scales, num_heads)
  end
  for head = 0, num_heads do
    var index = terralib.select(view:num_elements() == 1, 0, self.layout.rank * num_heads + head)
    status.try(self:vector(view, index, 1, scales + head))
  end
  return C.GLM_OK
end

terra place.weights(
  layout : &Layout,
  model : &ModelWeights,
  list : &modules.ModuleList,
  checkpoint : &safetensors.Checkpoint,
  device : &C.glm_device,
  progress : &Progress,
  message : &C.glm_message
) : int32
  var placer = Placer { layout, model, checkpoint, device, progress, message }
  for i = 0, list.list.size do
    status.try(placer:module(list.list:at(i)))
  end
  if not layout.keeps_head_scales then
    return C.GLM_OK
  end
  for layer = 0, weights.num_loaded_layers(layout.config) do
    escape
      for _, scale in ipairs(weights.head_scales) do
        emit quote status.try(placer:head_scales([head_scales.find[scale.field]](checkpoint, layer), model.[scale.field] + layer * model.num_local_kv_heads)) end
      end
    end
  end
  return C.GLM_OK
end

return place
