local abi = require("terra.base.abi")
local files = require("terra.base.files")
local groups = require("terra.ranks.groups")
local gpus = require("terra.ranks.gpus")
local status = require("terra.base.status")
local text = require("terra.base.text")
local C = abi.C

local device = {}

device.kinds = { "cpu", "cuda", "futhark" }
device.gpu_kind = "cuda"
device.any_gpu_kind = "futhark"
device.automatic = "auto"
local open_symbol = "glm_backend_open"
local path_capacity = 4096
local kind_capacity = 16
local hint_capacity = 160
local native_capability = 90

local struct Library {
  handle : &opaque
  backend : &C.glm_backend
  kind : int8[kind_capacity]
  path : int8[path_capacity]
  plans_only : bool
}
device.Library = Library

local terra anchor()
end

terra device.is_automatic(wanted : rawstring) : bool
  return wanted == nil or wanted[0] == 0 or C.strcmp(wanted, [device.automatic]) == 0
end

terra device.automatic_kind(found : &gpus.Gpus) : rawstring
  if found.count == 0 then
    return "cpu"
  elseif found.capability == native_capability then
    return [device.gpu_kind]
  end
  return [device.any_gpu_kind]
end

terra device.resolve_kind(wanted : rawstring, kind : &int8, message : &C.glm_message) : int32
  var chosen = wanted
  if device.is_automatic(wanted) then
    var found : gpus.Gpus
    status.try(found:find("", message))
    chosen = device.automatic_kind(&found)
  end
  escape
    for _, name in ipairs(device.kinds) do
      emit quote
        if C.strcmp(chosen, [name]) == 0 then
          C.strcpy(kind, [name])
          return C.GLM_OK
        end
      end
    end
  end
  return status.fail(message, C.GLM_INVALID_ARGUMENT, "device \"%.64s\" is unknown; expected auto, cpu, cuda or futhark", wanted)
end

local terra own_folder(target : &int8, message : &C.glm_message) : int32
  var info : C.Dl_info
  var place : {} -> {} = anchor
  status.fail_if(message, C.dladdr([&opaque](place), &info) == 0 or info.dli_fname == nil, C.GLM_NOT_FOUND, "cannot find the engine library's folder; set library_dir")
  var slash = C.strrchr(info.dli_fname, [string.byte("/")])
  if slash == nil then
    C.strcpy(target, ".")
    return C.GLM_OK
  end
  text.copy_into(target, path_capacity, text.Slice { [&uint8](info.dli_fname), slash - info.dli_fname })
  return C.GLM_OK
end

terra Library:is_kind(kind : rawstring) : bool
  return C.strcmp(&self.kind[0], kind) == 0
end

terra Library:kind_name() : rawstring
  escape
    for _, name in ipairs(device.kinds) do
      emit quote
        if self:is_kind([name]) then
          return [name]
        end
      end
    end
  end
  return ""
end

terra Library:shares_memory() : bool
  return self:is_kind("cpu")
end

terra Library:file_name() : rawstring
  if self.plans_only and self:is_kind([device.gpu_kind]) then
    return "cuda_plan"
  elseif self.plans_only then
    return "cpu"
  end
  return &self.kind[0]
end

terra Library:locate(library_dir : rawstring, message : &C.glm_message) : int32
  var folder : int8[path_capacity]
  var is_own = library_dir == nil or library_dir[0] == 0
  if is_own then
    status.try(own_folder(&folder[0], message))
  else
    text.copy_into(&folder[0], path_capacity, text.slice(library_dir))
  end
  var written = C.snprintf(&self.path[0], path_capacity, "%s/libglm_%s.so", &folder[0], self:file_name())
  status.refuse(message, written >= path_capacity, "library_dir is longer than %d characters", path_capacity - 32)
  if is_own and not files.exists(&self.path[0]) then
    C.snprintf(&self.path[0], path_capacity, "libglm_%s.so", self:file_name())
  end
  return C.GLM_OK
end

terra Library:build_command() : rawstring
  if self.plans_only then
    return "tools/develop scons libraries"
  elseif self:shares_memory() then
    return "tools/develop scons engine cpu"
  elseif self:is_kind([device.gpu_kind]) then
    return "tools/develop --with cuda scons engine cuda"
  end
  return "tools/develop --with cuda scons engine futhark"
end

terra Library:load(was_automatic : bool, message : &C.glm_message) : int32
  if not (self:shares_memory() or self.plans_only) then
    gpus.open_driver("")
  end
  self.handle = C.dlopen(&self.path[0], C.RTLD_NOW or C.RTLD_LOCAL or C.RTLD_NODELETE)
  if self.handle == nil then
    var hint : int8[hint_capacity]
    hint[0] = 0
    if was_automatic and not (self:shares_memory() or self.plans_only) then
      C.snprintf(&hint[0], hint_capacity, "device auto selected %s because this machine has an NVIDIA GPU (use device cpu to run on the CPU); ", &self.kind[0])
    end
    var problem = C.dlerror()
    if C.strstr(problem, "libnvrtc") ~= nil then
      return status.fail(message, C.GLM_NOT_SUPPORTED, "%sdevice %s needs NVIDIA's compiler NVRTC: %.600s; install it with `pip install 'glm-engine[futhark]'`", &hint[0], &self.kind[0], problem)
    end
    return status.fail(
      message, C.GLM_NOT_SUPPORTED, "%scannot open the library for device %s: %.700s; in a source checkout, build it with `%s`", &hint[0],
      &self.kind[0], problem, self:build_command()
    )
  end
  var symbol = C.dlsym(self.handle, open_symbol)
  status.fail_if(message, symbol == nil, C.GLM_NOT_SUPPORTED, "%.800s does not export %s", &self.path[0], open_symbol)
  var open = [C.glm_backend_open_function](symbol)
  status.try(open(C.GLM_BACKEND_ABI_VERSION, &self.backend, message))
  status.fail_if(message, self.backend == nil or self.backend.abi_version ~= C.GLM_BACKEND_ABI_VERSION or self.backend.struct_size ~= sizeof(C.glm_backend), C.GLM_NOT_SUPPORTED, "%.800s was built for a different version of backend.h", &self.path[0])
  return C.GLM_OK
end

terra Library:init()
  C.memset(self, 0, sizeof(Library))
end

terra Library:close()
  if self.handle ~= nil then
    C.dlclose(self.handle)
  end
  self:init()
end

terra Library:open_found(was_automatic : bool, library_dir : rawstring, message : &C.glm_message) : int32
  status.try(self:locate(library_dir, message))
  var code = self:load(was_automatic, message)
  if code ~= C.GLM_OK then
    self:close()
  end
  return code
end

terra Library:open(wanted : rawstring, library_dir : rawstring, message : &C.glm_message) : int32
  self:init()
  status.try(device.resolve_kind(wanted, &self.kind[0], message))
  return self:open_found(device.is_automatic(wanted), library_dir, message)
end

terra Library:open_for_plans(wanted : rawstring, library_dir : rawstring, message : &C.glm_message) : int32
  self:init()
  self.plans_only = true
  var chosen = wanted
  if device.is_automatic(wanted) then
    chosen = [device.gpu_kind]
  end
  status.try(device.resolve_kind(chosen, &self.kind[0], message))
  return self:open_found(false, library_dir, message)
end

terra Library:describe_rank(
  group : &C.glm_group,
  rank : int32,
  world_size : int32,
  info : &C.glm_device_info,
  message : &C.glm_message
) : int32
  var options : C.glm_device_options
  C.memset(&options, 0, sizeof(C.glm_device_options))
  options.struct_size = sizeof(C.glm_device_options)
  options.rank = rank
  options.world_size = world_size
  options.num_threads = 1
  options.group = group
  var handle : &C.glm_device = nil
  status.try(self.backend.device_open(&options, &handle, message))
  C.memset(info, 0, sizeof(C.glm_device_info))
  info.struct_size = sizeof(C.glm_device_info)
  var code = self.backend.device_info(handle, info)
  if code ~= C.GLM_OK then
    self.backend.device_message(handle, message)
  end
  self.backend.device_close(handle)
  return code
end

terra Library:describe_ranks(group : &C.glm_group, world_size : int32, info : &C.glm_device_info, message : &C.glm_message) : int32
  status.try(self:describe_rank(group, 0, world_size, info, message))
  for rank = 1, world_size do
    var other : C.glm_device_info
    status.try(self:describe_rank(group, rank, world_size, &other, message))
    if other.memory_free_bytes < info.memory_free_bytes then
      info.memory_free_bytes = other.memory_free_bytes
    end
  end
  return C.GLM_OK
end

terra Library:divide_memory(ranks_per_device : int32, info : &C.glm_device_info)
  if not self:shares_memory() then
    info.memory_total_bytes = info.memory_total_bytes / ranks_per_device
    info.memory_free_bytes = info.memory_free_bytes / ranks_per_device
  end
end

terra Library:describe(world_size : int32, ranks_per_device : int32, info : &C.glm_device_info, message : &C.glm_message) : int32
  status.try(groups.check(world_size, ranks_per_device, message))
  if world_size == 1 then
    return self:describe_rank(nil, 0, 1, info, message)
  end
  var group : &C.glm_group = nil
  status.try(groups.create(self.backend, world_size, ranks_per_device, &group, message))
  var code = self:describe_ranks(group, world_size, info, message)
  self.backend.group_free(group)
  self:divide_memory(ranks_per_device, info)
  return code
end

terra Library:takes_world_size(world_size : int32) : bool
  return self:shares_memory() or world_size == 1 or world_size == 2 or world_size == 4 or world_size == 8
end

terra Library:describe_kind(
  world_size : int32,
  ranks_per_device : int32,
  memory_bytes : int64,
  info : &C.glm_device_info,
  message : &C.glm_message
) : int32
  status.try(groups.check(world_size, ranks_per_device, message))
  status.refuse(message, not self:takes_world_size(world_size), "world_size is %d; expected 1, 2, 4 or 8 for device %s", world_size, &self.kind[0])
  C.memset(info, 0, sizeof(C.glm_device_info))
  info.struct_size = sizeof(C.glm_device_info)
  var code = self.backend.device_info(nil, info)
  status.fail_if(message, code ~= C.GLM_OK, code, "%.800s cannot report device information without opening a device", &self.path[0])
  info.memory_total_bytes = memory_bytes
  info.memory_free_bytes = memory_bytes
  self:divide_memory(ranks_per_device, info)
  return C.GLM_OK
end

return device
