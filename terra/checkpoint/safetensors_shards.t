local abi = require("terra.base.abi")
local containers = require("terra.base.containers")
local files = require("terra.base.files")
local header = require("terra.checkpoint.safetensors_header")
local json = require("terra.base.json")
local problems = require("terra.checkpoint.problems")
local status = require("terra.base.status")
local text = require("terra.base.text")
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
  only : rawstring
  is_sound : bool
}
safetensors.Shard = Shard

local struct Checkpoint {
  directory : rawstring
  index_file : rawstring
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

local broken_text = "part of the file could not be read after it was opened: either the file was truncated or the disk is failing"

local complain = macro(function(self, code, file, tensor, format, ...)
  local arguments = terralib.newlist { ... }
  return quote
    problems.add(&self.problems, code, file, tensor, format, [arguments])
  end
end)

safetensors.complain = complain

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
  self.index_file = ""
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
  return status.fail(message, C.GLM_OUT_OF_MEMORY, "%s: out of memory while reading the checkpoint's headers", self.directory)
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
      complain(self, C.GLM_INVALID_CHECKPOINT, self:file_of(view), view.name, "the tensor is also in %s", self:file_of(other))
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
    complain(self, code, shard.file, "", "cannot read the shard: %s", &message.text[0])
    return false
  end
  self.bytes = self.bytes + shard.mapping.size
  return true
end

terra Checkpoint:keep_named(first : int64, prefix : rawstring)
  var kept, size = first, C.strlen(prefix)
  for i = first, self.tensors.size do
    var view = @self.tensors:at(i)
    if C.strncmp(view.name, prefix, size) == 0 then
      @self.tensors:at(kept) = view
      kept = kept + 1
    end
  end
  self.tensors.size = kept
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
  if shard.only ~= nil then
    self:keep_named(first, shard.only)
  end
  shard.num_tensors = self.tensors.size - first
  self.has_unsound_shard = self.has_unsound_shard or not shard.is_sound
  return self:register_tensors(first)
end

terra Checkpoint:report_broken()
  for i = 0, self.shards.size do
    var shard = self.shards:at(i)
    if shard.mapping:is_broken() then
      complain(self, C.GLM_IO_ERROR, shard.file, "", broken_text)
    end
  end
end

terra Checkpoint:expect_whole(message : &C.glm_message) : int32
  for i = 0, self.shards.size do
    var shard = self.shards:at(i)
    if shard.mapping:is_broken() then
      return status.fail(message, C.GLM_IO_ERROR, ["%s: %s: " .. broken_text], self.directory, shard.file)
    end
  end
  return C.GLM_OK
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

require("terra.checkpoint.safetensors_beside")(Checkpoint)

return safetensors
