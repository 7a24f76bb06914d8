local abi = require("terra.base.abi")
local files = require("terra.base.files")
local json = require("terra.base.json")
local problems = require("terra.checkpoint.problems")
local status = require("terra.base.status")
local text = require("terra.base.text")
local C = abi.C

local suffix = ".safetensors"

return function(Checkpoint)
  local terra holds(directory : rawstring, file : rawstring, tensor : rawstring) : bool
    var message : C.glm_message
    var other : Checkpoint
    other:init()
    other.directory = directory
    var is_held = other:add_shard(text.slice(file)) == 0 and other:read_shards(&message) == C.GLM_OK
      and not other.has_unsound_shard and other:find(tensor) ~= nil
    other:close()
    return is_held
  end

  terra Checkpoint:find_beside(tensor : rawstring, file : &rawstring, message : &C.glm_message) : int32
    var name : int8[problems.name_capacity]
    var after : int8[problems.name_capacity]
    name[0] = 0
    @file = nil
    repeat
      after = name
      status.try(files.find_name(self.directory, suffix, &after[0], &name[0], problems.name_capacity, message))
      var found = text.slice(&name[0])
      if text.ends_with(found, suffix) and self.shard_by_file:find(found) == nil and holds(self.directory, &name[0], tensor) then
        @file = self.arena:copy(found)
        status.fail_if(message, @file == nil, C.GLM_OUT_OF_MEMORY, "%s: out of memory", self.directory)
      end
    until @file ~= nil or name[0] == 0
    return C.GLM_OK
  end

  terra Checkpoint:read_beside(file : rawstring, prefix : rawstring, message : &C.glm_message) : int32
    var document : json.Document
    var index = self:add_shard(text.slice(file))
    if index < 0 then
      return self:out_of_memory(message)
    end
    var shard = self.shards:at(index)
    shard.only = self.arena:copy(text.slice(prefix))
    if shard.only == nil then
      return self:out_of_memory(message)
    end
    document:init()
    var is_complete = self:read_shard(index, &document)
    document:free()
    if not is_complete then
      return self:out_of_memory(message)
    end
    return C.GLM_OK
  end
end
