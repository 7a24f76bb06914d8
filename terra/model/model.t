local abi = require("terra.base.abi")
local config = require("terra.checkpoint.config")
local files = require("terra.base.files")
local json = require("terra.base.json")
local layout = require("terra.model.layout")
local modules = require("terra.model.modules")
local problems = require("terra.checkpoint.problems")
local quantisation = require("terra.checkpoint.quantisation")
local reader = require("terra.checkpoint.config_reader")
local safetensors = require("terra.checkpoint.safetensors")
local status = require("terra.base.status")
local text = require("terra.base.text")
local validate = require("terra.model.validate")
local weights = require("terra.model.weights")
local C = abi.C

local model = {}

local shard_suffix = ".safetensors"

local struct Model {
  arena : text.Arena
  directory : rawstring
  config_path : rawstring
  side_path : rawstring
  generation_path : rawstring
  config : config.ModelConfig
  quantisation : quantisation.Quantisation
  modules : modules.ModuleList
  types : layout.WeightTypes
  checkpoint : safetensors.Checkpoint
  has_weights : bool
  has_prediction : bool
  prediction_file : rawstring
  prediction_problem : rawstring
  has_head_scales : bool
  num_parameters : int64
  num_skipped_parameters : int64
  tensor_bytes : int64
  skipped_tensor_bytes : int64
}
model.Model = Model

terra Model:init()
  self.arena:init()
  self.directory = nil
  self.config_path = nil
  self.side_path = nil
  self.generation_path = nil
  self.quantisation:init()
  self.modules:init()
  self.types.codes = nil
  self.checkpoint:init()
  self.has_weights = false
  self.has_prediction = false
  self.prediction_file = nil
  self.prediction_problem = nil
  self.has_head_scales = false
  self.num_parameters = 0
  self.num_skipped_parameters = 0
  self.tensor_bytes = 0
  self.skipped_tensor_bytes = 0
end

terra Model:close()
  self.checkpoint:close()
  self.types:free()
  self.modules:free()
  self.quantisation:free()
  self.arena:free()
end

terra Model:parse_config(document : &json.Document, contents : text.Slice, message : &C.glm_message) : int32
  status.try(config.parse(document, contents, self.config_path, &self.config, message))
  var from = reader.open(document, self.config_path, message)
  return self.quantisation:read(&from)
end

terra Model:check_side_file(document : &json.Document, contents : text.Slice, message : &C.glm_message) : int32
  status.try(document:parse(contents, self.side_path, message))
  return quantisation.check_side_file(document, self.side_path, message)
end

terra Model:parse_generation(document : &json.Document, contents : text.Slice, message : &C.glm_message) : int32
  return config.parse_generation(document, contents, self.generation_path, &self.config, message)
end

local function reader_of(path, parse)
  return terra(self : &Model, message : &C.glm_message) : int32
    var file : files.ReadFile
    status.try(file:open(self.[path], json.max_bytes, message))
    var document : json.Document
    document:init()
    var code = self:[parse](&document, file:contents(), message)
    document:free()
    file:close()
    return code
  end
end

local read_config_file = reader_of("config_path", "parse_config")
local read_side_file = reader_of("side_path", "check_side_file")
local read_generation_file = reader_of("generation_path", "parse_generation")

terra Model:read_config(message : &C.glm_message) : int32
  status.try(read_config_file(self, message))
  if not self.quantisation.is_present and self.side_path ~= nil and files.exists(self.side_path) then
    status.try(read_side_file(self, message))
  end
  if self.generation_path ~= nil and files.exists(self.generation_path) then
    status.try(read_generation_file(self, message))
  end
  return C.GLM_OK
end

terra Model:locate(path : rawstring, message : &C.glm_message) : int32
  status.refuse(message, path == nil or path[0] == 0, "model_dir is empty")
  self.directory = self.arena:copy(text.slice(path))
  if files.is_directory(path) then
    self.config_path = safetensors.join(&self.arena, path, [config.file_name])
    self.side_path = safetensors.join(&self.arena, path, [quantisation.side_file_name])
    self.generation_path = safetensors.join(&self.arena, path, [config.generation_file_name])
    self.has_weights = safetensors.has_weights(path)
  else
    self.config_path = self.arena:copy(text.slice(path))
  end
  status.fail_if(message, self.directory == nil or self.config_path == nil, C.GLM_OUT_OF_MEMORY, "%s: out of memory", path)
  return C.GLM_OK
end

terra Model:list_modules(message : &C.glm_message) : int32
  status.try(self.modules:build(&self.config, &self.quantisation, message))
  status.fail_if(message, not self.types:init(weights.num_listed_layers(&self.config)), C.GLM_OUT_OF_MEMORY, "%s: out of memory", self.directory)
  return C.GLM_OK
end

require("terra.model.prediction")(Model)

terra Model:read_headers(message : &C.glm_message) : int32
  if not self.has_weights then
    return C.GLM_OK
  end
  self.checkpoint:close()
  return self.checkpoint:read(self.directory, message)
end

terra Model:check_weights(checks_scales : bool)
  var validator = validate.Validator {
    config = &self.config,
    list = &self.modules,
    checkpoint = &self.checkpoint,
    types = &self.types,
  }
  validator:check_all()
  if checks_scales then
    validator:check_values()
  end
  self.checkpoint:report_broken()
  self.has_head_scales = validator.has_head_scales
  self.num_parameters = validator.num_parameters
  self.num_skipped_parameters = validator.num_skipped_parameters
  self.tensor_bytes = validator.tensor_bytes
  self.skipped_tensor_bytes = validator.skipped_tensor_bytes
end

terra Model:assume_weights()
  self.types:fill(&self.modules)
  self.modules:count(false, &self.num_parameters, &self.tensor_bytes)
  self.modules:count(true, &self.num_skipped_parameters, &self.skipped_tensor_bytes)
end

terra Model:cut(num_layers : int32, message : &C.glm_message) : int32
  var c = &self.config
  status.refuse(message, num_layers > c.num_layers, "num_layers is %d, but %s has only %d layers", num_layers, self.config_path, c.num_layers)
  c.num_cut_layers = c.num_layers - num_layers
  c.num_layers = num_layers
  c.num_nextn_predict_layers = c.num_prediction_layers
  if c.first_k_dense_replace > num_layers then
    c.first_k_dense_replace = num_layers
  end
  return C.GLM_OK
end

terra Model:read_synthetic(path : rawstring, num_layers : int32, speculate : int32, message : &C.glm_message) : int32
  self:init()
  status.try(self:locate(path, message))
  self.has_weights = false
  status.try(self:read_config(message))
  status.try(self:choose_prediction(speculate, message))
  if num_layers > 0 then
    status.try(self:cut(num_layers, message))
  end
  status.try(self:list_modules(message))
  self:assume_weights()
  return C.GLM_OK
end

terra Model:expect_no_shards(message : &C.glm_message) : int32
  if not files.is_directory(self.directory) then
    return C.GLM_OK
  end
  var name : int8[problems.name_capacity]
  status.try(files.find_name(self.directory, shard_suffix, "", &name[0], problems.name_capacity, message))
  if name[0] ~= 0 then
    problems.add(&self.checkpoint.problems, C.GLM_NOT_FOUND, safetensors.index_name, "", "the file is missing, but %s exists", &name[0])
  end
  return C.GLM_OK
end

terra Model:read_whole(path : rawstring, speculate : int32, checks_scales : bool, message : &C.glm_message) : int32
  self:init()
  status.try(self:locate(path, message))
  status.try(self:read_config(message))
  status.try(self:read_headers(message))
  status.try(self:choose_prediction(speculate, message))
  status.try(self:list_modules(message))
  if not self.has_weights then
    self:assume_weights()
    return self:expect_no_shards(message)
  end
  self:check_weights(checks_scales)
  return C.GLM_OK
end

terra Model:read(path : rawstring, speculate : int32, checks_scales : bool, message : &C.glm_message) : int32
  status.try(self:read_whole(path, speculate, checks_scales, message))
  var found = &self.checkpoint.problems
  if speculate ~= C.ENGINE_SPECULATE_AUTO or self.config.num_prediction_layers == 0 or found.list.size == 0 then
    return C.GLM_OK
  end
  var problem : int8[problems.text_capacity]
  found.list:at(0):append_to(&problem[0], problems.text_capacity, 0, "")
  self:close()
  status.try(self:read_whole(path, C.ENGINE_SPECULATE_OFF, checks_scales, message))
  self.prediction_problem = self.arena:copy(text.slice(&problem[0]))
  status.fail_if(message, self.prediction_problem == nil, C.GLM_OUT_OF_MEMORY, "%s: out of memory", path)
  return C.GLM_OK
end

terra Model:open(path : rawstring, speculate : int32, message : &C.glm_message) : int32
  status.try(self:read(path, speculate, true, message))
  status.fail_if(
    message, not self.has_weights, C.GLM_NOT_FOUND,
    "%s: found neither %s nor %s",
    path,
    safetensors.index_name,
    safetensors.single_name
  )
  return self.checkpoint.problems:report(self.directory, message)
end

return model
