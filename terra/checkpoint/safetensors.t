local abi = require("terra.base.abi")
local files = require("terra.base.files")
local json = require("terra.base.json")
local printable = require("terra.base.printable")
local problems = require("terra.checkpoint.problems")
local safetensors = require("terra.checkpoint.safetensors_shards")
local status = require("terra.base.status")
local text = require("terra.base.text")
local C = abi.C
local Checkpoint = safetensors.Checkpoint
local Shard = safetensors.Shard
local Slice = text.Slice

local complain = safetensors.complain
local max_shards = 10000

local terra is_plain_file_name(name : Slice) : bool
  for i = 0, name.size do
    if name.data[i] == [string.byte("/")] then
      return false
    end
  end
  return printable.holds(name) and name.size > 0 and not text.equals(name, "..") and not text.equals(name, ".")
end

terra safetensors.weight_map(document : &json.Document, contents : Slice, message : &C.glm_message) : &json.Node
  if document:parse(contents, safetensors.index_name, message) ~= C.GLM_OK then
    return nil
  end
  var map = document:find(document:root(), "weight_map")
  if map == nil or map.kind ~= json.object_kind then
    status.fail(message, C.GLM_INVALID_CHECKPOINT, "%s: expected an object named weight_map", safetensors.index_name)
    return nil
  end
  var entry = document:child(map)
  while entry ~= nil do
    if entry.kind ~= json.string_kind or not is_plain_file_name(entry.string) then
      status.fail(
        message,
        C.GLM_INVALID_CHECKPOINT,
        "%s: expected weight_map to map %.*s to a file name without a folder",
        safetensors.index_name,
        [int32](entry.key.size),
        entry.key.data
      )
      return nil
    end
    entry = document:next(entry)
  end
  return map
end

terra Checkpoint:collect_shards(document : &json.Document, map : &json.Node, message : &C.glm_message) : int32
  var entry = document:child(map)
  while entry ~= nil do
    if self:add_shard(entry.string) < 0 then
      return self:out_of_memory(message)
    end
    status.fail_if(message, self.shards.size > max_shards, C.GLM_NOT_SUPPORTED, "%s: weight_map names more than %d files", safetensors.index_name, [int32](max_shards))
    entry = document:next(entry)
  end
  return C.GLM_OK
end

local terra compare_files(left : &opaque, right : &opaque) : int32
  return C.strcmp([&Shard](left).file, [&Shard](right).file)
end

terra Checkpoint:sort_shards() : bool
  if self.shards.size > 1 then
    C.qsort(self.shards.data, self.shards.size, sizeof(Shard), compare_files)
  end
  self.shard_by_file:clear()
  for i = 0, self.shards.size do
    if not self.shard_by_file:insert(text.slice(self.shards:at(i).file), i) then
      return false
    end
  end
  return true
end

terra Checkpoint:match_entry(entry : &json.Node)
  var shard_index = @self.shard_by_file:find(entry.string)
  var shard = self.shards:at(shard_index)
  var index = self.by_name:find(entry.key)
  var name : int8[problems.name_capacity]
  text.copy_into(&name[0], problems.name_capacity, entry.key)
  if index == nil then
    if shard.is_sound then
      complain(self, C.GLM_INVALID_CHECKPOINT, safetensors.index_name, &name[0], "the index says this tensor is in %s, but that file does not contain it", shard.file)
    end
    return
  end
  var view = self.tensors:at(@index)
  view.is_listed = true
  if view.shard ~= shard_index then
    complain(
      self, C.GLM_INVALID_CHECKPOINT, safetensors.index_name, &name[0],
      "the index says this tensor is in %s, but it is in %s", shard.file, self:file_of(view)
    )
  end
end

terra Checkpoint:match_index(document : &json.Document, map : &json.Node)
  var entry = document:child(map)
  while entry ~= nil do
    self:match_entry(entry)
    entry = document:next(entry)
  end
  for i = 0, self.tensors.size do
    var view = self.tensors:at(i)
    if not view.is_listed then
      complain(self, C.GLM_INVALID_CHECKPOINT, self:file_of(view), view.name, "the index does not list this tensor")
    end
  end
end

terra Checkpoint:read_indexed(document : &json.Document, contents : Slice, message : &C.glm_message) : int32
  var map = safetensors.weight_map(document, contents, message)
  if map == nil then
    return C.GLM_INVALID_CHECKPOINT
  end
  status.try(self:collect_shards(document, map, message))
  if not self:sort_shards() then
    return self:out_of_memory(message)
  end
  status.try(self:read_shards(message))
  self.index_file = safetensors.index_name
  if self.shards.size == 1 then
    self.index_file = self.shards:at(0).file
  end
  self:match_index(document, map)
  return C.GLM_OK
end

terra Checkpoint:read_index(path : rawstring, message : &C.glm_message) : int32
  var index : files.ReadFile
  status.try(index:open(path, json.max_bytes, message))
  var document : json.Document
  document:init()
  var code = self:read_indexed(&document, index:contents(), message)
  document:free()
  index:close()
  return code
end

terra Checkpoint:read_single(message : &C.glm_message) : int32
  if self:add_shard(text.slice(safetensors.single_name)) < 0 then
    return self:out_of_memory(message)
  end
  self.index_file = safetensors.single_name
  return self:read_shards(message)
end

terra safetensors.has_weights(directory : rawstring) : bool
  var path : int8[C.PATH_MAX]
  C.snprintf(&path[0], C.PATH_MAX, "%s/%s", directory, safetensors.index_name)
  if files.exists(&path[0]) then
    return true
  end
  C.snprintf(&path[0], C.PATH_MAX, "%s/%s", directory, safetensors.single_name)
  return files.exists(&path[0])
end

terra Checkpoint:read(directory : rawstring, message : &C.glm_message) : int32
  self:init()
  self.directory = self.arena:copy(text.slice(directory))
  if self.directory == nil then
    self.directory = ""
    return self:out_of_memory(message)
  end
  var index_path = safetensors.join(&self.arena, directory, safetensors.index_name)
  var single_path = safetensors.join(&self.arena, directory, safetensors.single_name)
  if index_path == nil or single_path == nil then
    return self:out_of_memory(message)
  end
  if files.exists(index_path) then
    return self:read_index(index_path, message)
  elseif files.exists(single_path) then
    return self:read_single(message)
  end
  return status.fail(
    message,
    C.GLM_NOT_FOUND,
    "%s: found neither %s nor %s",
    directory,
    safetensors.index_name,
    safetensors.single_name
  )
end

terra Checkpoint:open(directory : rawstring, message : &C.glm_message) : int32
  status.try(self:read(directory, message))
  return self.problems:report(directory, message)
end

return safetensors
