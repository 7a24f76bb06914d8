local abi = require("terra.abi")
local containers = require("terra.containers")
local files = require("terra.files")
local header = require("terra.safetensors_header")
local json = require("terra.json")
local problems = require("terra.problems")
local status = require("terra.status")
local text = require("terra.text")
local C = abi.C
local Slice = text.Slice

local safetensors = {
  TensorView = header.TensorView,
  HeaderReader = header.HeaderReader,
  index_name = "model.safetensors.index.json",
  single_name = "model.safetensors",
}

local struct Shard {
  file : rawstring
  mapping : files.MappedFile
  num_tensors : int32
  is_sound : bool
}
safetensors.Shard = Shard

local struct Checkpoint {
  directory : rawstring
  arena : text.Arena
  shards : containers.Vector(Shard)
  shard_by_file : text.Map(int32)
  tensors : header.TensorList
  by_name : text.Map(int32)
  problems : problems.Problems
  bytes : int64
  has_unsound_shard : bool
}
safetensors.Checkpoint = Checkpoint

local complain = macro(function(self, code, file, tensor, format, ...)
  local arguments = terralib.newlist { ... }
  return quote
    problems.add(&self.problems, code, file, tensor, format, [arguments])
  end
end)

terra safetensors.join(arena : &text.Arena, directory : rawstring, file : rawstring) : rawstring
  var size = C.strlen(directory) + C.strlen(file) + 2
  var path = [rawstring](arena:allocate(size))
  if path ~= nil then
    C.snprintf(path, size, "%s/%s", directory, file)
  end
  return path
end

terra Checkpoint:init()
  self.directory = ""
  self.arena:init()
  self.shards:init()
  self.shard_by_file:init()
  self.tensors:init()
  self.by_name:init()
  self.problems:init()
  self.bytes = 0
  self.has_unsound_shard = false
end

terra Checkpoint:close()
  for i = 0, self.shards.size do
    self.shards:at(i).mapping:close()
  end
  self.arena:free()
  self.shards:free()
  self.shard_by_file:free()
  self.tensors:free()
  self.by_name:free()
  self.problems:free()
end

terra Checkpoint:find(name : rawstring) : &header.TensorView
  var index = self.by_name:find(text.slice(name))
  if index == nil then
    return nil
  end
  return self.tensors:at(@index)
end

terra Checkpoint:shard_of(view : &header.TensorView) : &Shard
  return self.shards:at(view.shard)
end

terra Checkpoint:file_of(view : &header.TensorView) : rawstring
  return self.shards:at(view.shard).file
end

terra Checkpoint:out_of_memory(message : &C.glm_message) : int32
  return status.fail(message, C.GLM_OUT_OF_MEMORY, "%s: out of memory while the checkpoint's headers were read", self.directory)
end

terra Checkpoint:add_shard(file : Slice) : int32
  var known = self.shard_by_file:find(file)
  if known ~= nil then
    return @known
  end
  var shard : Shard
  C.memset(&shard, 0, [terralib.sizeof(Shard)])
  shard.file = self.arena:copy(file)
  var index = [int32](self.shards.size)
  if shard.file == nil or not self.shards:push(shard) then
    return -1
  end
  if not self.shard_by_file:insert(Slice { data = [&uint8](shard.file), size = file.size }, index) then
    return -1
  end
  return index
end

terra Checkpoint:register_tensors(first : int64) : bool
  if not self.by_name:reserve(self.tensors.size) then
    return false
  end
  for i = first, self.tensors.size do
    var view = self.tensors:at(i)
    var other = self:find(view.name)
    if other ~= nil then
      complain(self, C.GLM_INVALID_CHECKPOINT, self:file_of(view), view.name, "the tensor is in %s too", self:file_of(other))
    elseif not self.by_name:insert(text.slice(view.name), i) then
      return false
    end
  end
  return true
end

terra Checkpoint:map_shard(shard : &Shard) : bool
  var message : C.glm_message
  message.text[0] = 0
  var path = safetensors.join(&self.arena, self.directory, shard.file)
  if path == nil then
    complain(self, C.GLM_OUT_OF_MEMORY, shard.file, "", "out of memory")
    return false
  end
  var code = shard.mapping:open(path, &message)
  if code ~= C.GLM_OK then
    complain(self, code, shard.file, "", "the shard cannot be read: %s", &message.text[0])
    return false
  end
  self.bytes = self.bytes + shard.mapping.size
  return true
end

terra Checkpoint:read_shard(index : int32, document : &json.Document) : bool
  var shard = self.shards:at(index)
  var first = self.tensors.size
  if self:map_shard(shard) then
    var reader : header.HeaderReader
    reader.document = document
    reader.arena = &self.arena
    reader.tensors = &self.tensors
    reader.problems = &self.problems
    reader.file = shard.file
    reader.contents = shard.mapping:contents()
    reader.shard = index
    shard.is_sound = reader:read()
  end
  shard.num_tensors = self.tensors.size - first
  self.has_unsound_shard = self.has_unsound_shard or not shard.is_sound
  return self:register_tensors(first)
end

terra Checkpoint:read_shards(message : &C.glm_message) : int32
  var document : json.Document
  document:init()
  var is_complete = true
  for i = 0, self.shards.size do
    is_complete = is_complete and self:read_shard(i, &document)
  end
  document:free()
  if not is_complete then
    return self:out_of_memory(message)
  end
  return C.GLM_OK
end

local terra is_plain_file_name(name : Slice) : bool
  for i = 0, name.size do
    if name.data[i] == [string.byte("/")] or name.data[i] == 0 then
      return false
    end
  end
  return name.size > 0 and not text.equals(name, "..") and not text.equals(name, ".")
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
        "%s: weight_map gives no plain file name for %.*s",
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

terra Checkpoint:collect_shards(document : &json.Document, map : &json.Node) : bool
  var entry = document:child(map)
  while entry ~= nil do
    if self:add_shard(entry.string) < 0 then
      return false
    end
    entry = document:next(entry)
  end
  return true
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
      complain(self, C.GLM_INVALID_CHECKPOINT, safetensors.index_name, &name[0], "the index says it is in %s, which lacks it", shard.file)
    end
    return
  end
  var view = self.tensors:at(@index)
  view.is_listed = true
  if view.shard ~= shard_index then
    complain(
      self, C.GLM_INVALID_CHECKPOINT, safetensors.index_name, &name[0],
      "the index says it is in %s, but it is in %s", shard.file, self:file_of(view)
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
  if not self:collect_shards(document, map) or not self:sort_shards() then
    return self:out_of_memory(message)
  end
  status.try(self:read_shards(message))
  self:match_index(document, map)
  return C.GLM_OK
end

terra Checkpoint:read_index(path : rawstring, message : &C.glm_message) : int32
  var index : files.MappedFile
  status.try(index:open(path, message))
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
    "%s: holds neither %s nor %s",
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
