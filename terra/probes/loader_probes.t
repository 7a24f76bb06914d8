local abi = require("terra.base.abi")
local config = require("terra.checkpoint.config")
local config_reader = require("terra.checkpoint.config_reader")
local containers = require("terra.base.containers")
local hash = require("terra.base.hash")
local json = require("terra.base.json")
local model = require("terra.model.model")
local problems = require("terra.checkpoint.problems")
local quantisation = require("terra.checkpoint.quantisation")
local regex = require("terra.base.regex")
local safetensors = require("terra.checkpoint.safetensors")
local safetensors_header = require("terra.checkpoint.safetensors_header")
local status = require("terra.base.status")
local text = require("terra.base.text")
local C = abi.C
local Slice = text.Slice

local terra loader_parse_json(data : &uint8, size : int64, message : &C.glm_message) : int32
  var document : json.Document
  document:init()
  var code = document:parse(Slice { data = data, size = size }, "buffer", message)
  document:free()
  return code
end

local terra loader_parse_header(data : &uint8, size : int64, message : &C.glm_message) : int32
  var document : json.Document
  var arena : text.Arena
  var tensors : safetensors_header.TensorList
  var found : problems.Problems
  document:init()
  arena:init()
  tensors:init()
  found:init()
  var reader : safetensors.HeaderReader
  reader.document = &document
  reader.arena = &arena
  reader.tensors = &tensors
  reader.problems = &found
  reader.file = "buffer"
  reader.contents = Slice { data = data, size = size }
  reader.shard = 0
  var is_sound = reader:read()
  var code = found:report(".", message)
  if is_sound ~= (code == C.GLM_OK) then
    code = status.fail(message, C.GLM_INTERNAL_ERROR, "an invalid header was accepted without an error")
  end
  found:free()
  tensors:free()
  arena:free()
  document:free()
  return code
end

local terra loader_hash(first : uint64, second : uint64, data : &uint8, size : int64) : uint64
  return hash.siphash13(hash.Key { arrayof(uint64, first, second) }, data, size)
end

local terra loader_parse_index(data : &uint8, size : int64, message : &C.glm_message) : int32
  var document : json.Document
  document:init()
  var code = C.GLM_OK
  if safetensors.weight_map(&document, Slice { data = data, size = size }, message) == nil then
    code = C.GLM_INVALID_CHECKPOINT
  end
  document:free()
  return code
end

local terra parse_config(document : &json.Document, rules : &quantisation.Quantisation, contents : Slice, message : &C.glm_message) : int32
  var parsed : config.ModelConfig
  status.try(config.parse(document, contents, "buffer", &parsed, message))
  var from = config_reader.open(document, "buffer", message)
  status.try(rules:read(&from))
  rules:covers("model.layers.0.self_attn.q_proj")
  return C.GLM_OK
end

local terra loader_parse_config(data : &uint8, size : int64, message : &C.glm_message) : int32
  var document : json.Document
  var rules : quantisation.Quantisation
  document:init()
  rules:init()
  var code = parse_config(&document, &rules, Slice { data = data, size = size }, message)
  rules:free()
  document:free()
  return code
end

local terra loader_match_pattern(
  pattern : &uint8,
  pattern_size : int64,
  value : &uint8,
  value_size : int64,
  is_match : &int32,
  message : &C.glm_message
) : int32
  var compiled : regex.Regex
  @is_match = 0
  status.try(compiled:compile(Slice { data = pattern, size = pattern_size }, message))
  if compiled:matches(Slice { data = value, size = value_size }) then
    @is_match = 1
  end
  compiled:free()
  return C.GLM_OK
end

local terra loader_read_checkpoint(model_dir : rawstring, num_tensors : &int64, message : &C.glm_message) : int32
  var source : model.Model
  var code = source:read(model_dir, C.ENGINE_SPECULATE_OFF, false, message)
  if code == C.GLM_OK then
    code = source.checkpoint.problems:report(source.directory, message)
  end
  @num_tensors = source.checkpoint.tensors.size
  source:close()
  return code
end

local terra key_of(arena : &text.Arena, number : int64) : Slice
  var digits : int8[32]
  C.snprintf(&digits[0], 32, "key %lld", number)
  return text.slice(arena:copy(text.slice(&digits[0])))
end

local terra fill_map(map : &text.Map(int64), arena : &text.Arena, count : int64) : int64
  var num_wrong : int64 = 0
  for i = 0, count do
    var key = key_of(arena, i)
    if map:find(key) ~= nil or not map:insert(key, i) or not map:insert(key, 2 * i) then
      num_wrong = num_wrong + 1
    end
  end
  return num_wrong
end

local terra loader_exercise_map(count : int64) : int64
  var arena : text.Arena
  var map : text.Map(int64)
  arena:init()
  map:init()
  var num_wrong = fill_map(&map, &arena, count)
  for i = 0, count do
    var found = map:find(key_of(&arena, i))
    if found == nil or @found ~= 2 * i then
      num_wrong = num_wrong + 1
    end
  end
  if map.entries.size ~= count or map:find(key_of(&arena, count)) ~= nil then
    num_wrong = num_wrong + 1
  end
  map:clear()
  if count > 0 and map:find(key_of(&arena, 0)) ~= nil then
    num_wrong = num_wrong + 1
  end
  map:free()
  arena:free()
  return num_wrong
end

local terra loader_exercise_arena(count : int64, size : int64) : int64
  var arena : text.Arena
  var blocks : containers.Vector(&uint8)
  var num_wrong : int64 = 0
  arena:init()
  blocks:init()
  for i = 0, count do
    var block = arena:allocate(size)
    if block == nil or [int64](block) % 8 ~= 0 or not blocks:push(block) then
      num_wrong = num_wrong + 1
    else
      C.memset(block, [int32](i % 251), size)
    end
  end
  for i = 0, blocks.size do
    for j = 0, size do
      if (@blocks:at(i))[j] ~= [uint8](i % 251) then
        num_wrong = num_wrong + 1
      end
    end
  end
  blocks:free()
  arena:free()
  return num_wrong
end

return {
  probes = {
    loader_exercise_arena = loader_exercise_arena,
    loader_exercise_map = loader_exercise_map,
    loader_hash = loader_hash,
    loader_match_pattern = loader_match_pattern,
    loader_parse_config = loader_parse_config,
    loader_parse_header = loader_parse_header,
    loader_parse_index = loader_parse_index,
    loader_parse_json = loader_parse_json,
    loader_read_checkpoint = loader_read_checkpoint,
  },
}
