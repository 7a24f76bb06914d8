local abi = require("terra.base.abi")
local mappings = require("terra.base.mappings")
local status = require("terra.base.status")
local text = require("terra.base.text")
local C = abi.C

local files = {}

local FileStatus = C.fstat:gettype().parameters[2].type

local format_mask = C.__S_IFMT
local regular_format = 0x8000
local directory_format = 0x4000
local close_on_exec = 0x80000
local map_failed = `[&uint8](-1LL)

local struct MappedFile {
  data : &uint8
  size : int64
  mapping : &mappings.Mapping
}
files.MappedFile = MappedFile

local terra error_number() : int32
  return @C.__errno_location()
end

local terra failure_code(number : int32) : int32
  if number == C.ENOENT or number == C.ENOTDIR then
    return C.GLM_NOT_FOUND
  end
  return C.GLM_IO_ERROR
end

local terra fail_call(path : rawstring, call : rawstring, number : int32, message : &C.glm_message) : int32
  var buffer : int8[256]
  var cause = C.strerror_r(number, &buffer[0], 256)
  return status.fail(message, failure_code(number), "%s: %s failed: %s", path, call, cause)
end

terra files.format(path : rawstring) : int32
  var info : FileStatus
  if C.stat(path, &info) ~= 0 then
    return 0
  end
  return info.st_mode and format_mask
end

terra files.exists(path : rawstring) : bool
  return files.format(path) ~= 0
end

terra files.is_directory(path : rawstring) : bool
  return files.format(path) == directory_format
end

terra files.find_name(directory : rawstring, part : rawstring, after : rawstring, name : rawstring, capacity : int64, message : &C.glm_message) : int32
  name[0] = 0
  var opened = C.opendir(directory)
  if opened == nil then
    return fail_call(directory, "opendir", error_number(), message)
  end
  var entry = C.readdir(opened)
  while entry ~= nil do
    var found = [rawstring](&entry.d_name[0])
    var is_later = C.strcmp(found, after) > 0 and C.strlen(found) < capacity
    if is_later and C.strstr(found, part) ~= nil and (name[0] == 0 or C.strcmp(found, name) < 0) then
      C.snprintf(name, capacity, "%s", found)
    end
    entry = C.readdir(opened)
  end
  C.closedir(opened)
  return C.GLM_OK
end

local terra file_size(descriptor : int32, path : rawstring, size : &int64, message : &C.glm_message) : int32
  var info : FileStatus
  if C.fstat(descriptor, &info) ~= 0 then
    return fail_call(path, "fstat", error_number(), message)
  end
  status.refuse(message, (info.st_mode and format_mask) ~= regular_format, "%s: not a regular file", path)
  status.fail_if(message, info.st_size == 0, C.GLM_INVALID_CHECKPOINT, "%s: the file is empty", path)
  @size = info.st_size
  return C.GLM_OK
end

local terra map_descriptor(self : &MappedFile, descriptor : int32, path : rawstring, message : &C.glm_message) : int32
  var size : int64 = 0
  status.try(file_size(descriptor, path, &size, message))
  var data = [&uint8](C.mmap(nil, size, C.PROT_READ, C.MAP_PRIVATE, descriptor, 0))
  if data == map_failed then
    return fail_call(path, "mmap", error_number(), message)
  end
  self.mapping = mappings.add(data, size)
  if self.mapping == nil then
    C.munmap(data, size)
    return status.fail(message, C.GLM_OUT_OF_MEMORY, "%s: out of memory", path)
  end
  self.data = data
  self.size = size
  return C.GLM_OK
end

local terra open_read_only(path : rawstring, descriptor : &int32, message : &C.glm_message) : int32
  @descriptor = C.open(path, C.O_RDONLY or C.O_NONBLOCK or close_on_exec)
  if @descriptor < 0 then
    return fail_call(path, "open", error_number(), message)
  end
  return C.GLM_OK
end

terra MappedFile:open(path : rawstring, message : &C.glm_message) : int32
  self.data = nil
  self.size = 0
  self.mapping = nil
  var descriptor : int32
  status.try(open_read_only(path, &descriptor, message))
  var code = map_descriptor(self, descriptor, path, message)
  C.close(descriptor)
  return code
end

terra MappedFile:close()
  if self.mapping ~= nil then
    mappings.remove(self.mapping)
    C.munmap(self.data, self.size)
  end
  self.data = nil
  self.size = 0
  self.mapping = nil
end

terra MappedFile:is_broken() : bool
  return self.mapping ~= nil and self.mapping.is_broken
end

terra MappedFile:contents() : text.Slice
  return text.Slice { data = self.data, size = self.size }
end

local struct ReadFile {
  data : &uint8
  size : int64
}
files.ReadFile = ReadFile

local terra read_descriptor(self : &ReadFile, descriptor : int32, path : rawstring, most : int64, message : &C.glm_message) : int32
  var size : int64 = 0
  status.try(file_size(descriptor, path, &size, message))
  status.fail_if(message, size > most, C.GLM_INVALID_CHECKPOINT, "%s: the file has %lld bytes; the maximum is %lld", path, size, most)
  self.data = [&uint8](C.malloc(size))
  status.fail_if(message, self.data == nil, C.GLM_OUT_OF_MEMORY, "%s: out of memory", path)
  while self.size < size do
    var count = C.read(descriptor, self.data + self.size, size - self.size)
    if count < 0 then
      return fail_call(path, "read", error_number(), message)
    elseif count == 0 then
      return status.fail(message, C.GLM_IO_ERROR, "%s: the file shrank from %lld to %lld bytes while it was being read", path, size, self.size)
    end
    self.size = self.size + count
  end
  return C.GLM_OK
end

terra ReadFile:open(path : rawstring, most : int64, message : &C.glm_message) : int32
  self.data = nil
  self.size = 0
  var descriptor : int32
  status.try(open_read_only(path, &descriptor, message))
  var code = read_descriptor(self, descriptor, path, most, message)
  C.close(descriptor)
  if code ~= C.GLM_OK then
    self:close()
  end
  return code
end

terra ReadFile:close()
  C.free(self.data)
  self.data = nil
  self.size = 0
end

terra ReadFile:contents() : text.Slice
  return text.Slice { data = self.data, size = self.size }
end

return files
