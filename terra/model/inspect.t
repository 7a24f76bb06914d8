local abi = require("terra.base.abi")
local dtypes = require("terra.base.dtypes")
local model = require("terra.model.model")
local modules = require("terra.model.modules")
local safetensors = require("terra.checkpoint.safetensors")
local writer = require("terra.base.json_writer")
local C = abi.C
local JsonWriter = writer.JsonWriter
local Model = model.Model

local inspect = {}

local terra write_shards(out : &JsonWriter, source : &Model)
  out:key("shards")
  out:begin_array()
  for i = 0, source.checkpoint.shards.size do
    var shard = source.checkpoint.shards:at(i)
    out:begin_object()
    out:string_field("file", shard.file)
    out:integer_field("bytes", shard.mapping.size)
    out:integer_field("num_tensors", shard.num_tensors)
    out:end_object()
  end
  out:end_array()
end

local terra write_tensor(out : &JsonWriter, view : &safetensors.TensorView, file : rawstring)
  out:begin_object()
  out:string_field("name", view.name)
  out:string_field("dtype", dtypes.name(view.dtype))
  out:key("shape")
  out:begin_array()
  for i = 0, view.num_dimensions do
    out:integer(view.shape[i])
  end
  out:end_array()
  out:integer_field("bytes", view.bytes)
  out:string_field("file", file)
  out:integer_field("offset", view.offset)
  out:boolean_field("skipped", view.is_skipped)
  out:end_object()
end

local terra write_expected(out : &JsonWriter, module : &modules.Module, suffix : rawstring, dtype : int32, num_dimensions : int32, columns : int64)
  var name : int8[160]
  var view : safetensors.TensorView
  C.memset(&view, 0, sizeof(safetensors.TensorView))
  C.snprintf(&name[0], 160, "%s%s", module.name, suffix)
  view.name = &name[0]
  view.dtype = dtype
  view.num_dimensions = num_dimensions
  view.shape[0] = module.source.rows
  view.shape[1] = columns
  view.bytes = module.source.rows * columns * dtypes.bytes(dtype)
  view.is_skipped = module.is_skipped
  write_tensor(out, &view, "")
end

local terra write_module(out : &JsonWriter, module : &modules.Module, plain_dtype : int32)
  var num_dimensions = terralib.select(module.weight.is_vector, 1, 2)
  write_expected(out, module, module.source.suffix, module:weight_dtype(plain_dtype), num_dimensions, module.weight.columns)
  if module.is_quantised then
    write_expected(out, module, ".weight_scale", C.GLM_DTYPE_F32, 2, 1)
  end
  if module.weight.has_bias then
    write_expected(out, module, ".bias", plain_dtype, 1, 1)
  end
end

local terra write_tensors(out : &JsonWriter, source : &Model)
  out:key("tensors")
  out:begin_array()
  for i = 0, source.checkpoint.tensors.size do
    var view = source.checkpoint.tensors:at(i)
    write_tensor(out, view, source.checkpoint:file_of(view))
  end
  if not source.has_weights then
    for i = 0, source.modules.list.size do
      var module = source.modules.list:at(i)
      if not module.source.is_copy then
        write_module(out, module, source.config.plain_dtype)
      end
    end
  end
  out:end_array()
end

local terra write_problems(out : &JsonWriter, source : &Model)
  out:integer_field("num_problems", source.checkpoint.problems.total)
  out:key("problems")
  out:begin_array()
  for i = 0, source.checkpoint.problems.list.size do
    var problem = source.checkpoint.problems.list:at(i)
    out:begin_object()
    out:string_field("file", &problem.file[0])
    out:string_field("tensor", &problem.tensor[0])
    out:string_field("message", &problem.text[0])
    out:end_object()
  end
  out:end_array()
end

terra inspect.write(out : &JsonWriter, source : &Model)
  out:begin_object()
  out:string_field("model_dir", source.directory)
  out:string_field("architecture", &source.config.architecture[0])
  out:integer_field("num_layers", source.config.num_layers)
  source:write_prediction(out)
  out:integer_field("num_parameters", source.num_parameters)
  out:integer_field("num_parameters_skipped", source.num_skipped_parameters)
  out:integer_field("checkpoint_bytes", source.tensor_bytes)
  out:integer_field("checkpoint_bytes_skipped", source.skipped_tensor_bytes)
  write_shards(out, source)
  write_tensors(out, source)
  write_problems(out, source)
  out:end_object()
end

return inspect
