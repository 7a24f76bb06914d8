local abi = require("terra.base.abi")
local files = require("terra.base.files")
local status = require("terra.base.status")
local C = abi.C

local gpus = {}

local library = "libcuda.so.1"
local folders = {
  "/usr/lib/x86_64-linux-gnu",
  "/usr/lib/x86_64-linux-gnu/nvidia/current",
  "/usr/lib64",
  "/run/opengl-driver/lib",
  "/usr/lib/wsl/lib",
  "/usr/local/nvidia/lib64",
  "/usr/local/nvidia/lib",
}
local device_files = { "/dev/nvidiactl", "/proc/driver/nvidia/version" }
local no_device = 100
local major_attribute, minor_attribute = 75, 76
local advice = "use device cpu to run on the CPU"
local path_capacity = 4096

local struct Gpus {
  count : int32
  capability : int32
  handle : &opaque
  driver : int8[path_capacity]
}
gpus.Gpus = Gpus

local terra load(path : rawstring) : &opaque
  return C.dlopen(path, C.RTLD_NOW or C.RTLD_LOCAL or C.RTLD_NODELETE)
end

local terra path_below(root : rawstring, path : rawstring, target : &int8)
  C.snprintf(target, path_capacity, "%s%s", root, path)
end

local terra open_in_folders(root : rawstring) : &opaque
  var path : int8[path_capacity]
  escape
    for _, folder in ipairs(folders) do
      emit quote
        path_below(root, [folder .. "/" .. library], &path[0])
        var handle = load(&path[0])
        if handle ~= nil then
          return handle
        end
      end
    end
  end
  return nil
end

terra gpus.open_driver(root : rawstring) : &opaque
  if root[0] == 0 then
    var handle = load(library)
    if handle ~= nil then
      return handle
    end
  end
  return open_in_folders(root)
end

local terra device_file(root : rawstring, target : &int8) : bool
  escape
    for _, name in ipairs(device_files) do
      emit quote
        path_below(root, name, target)
        if files.exists(target) then
          return true
        end
      end
    end
  end
  return false
end

terra Gpus:expect_none(root : rawstring, message : &C.glm_message) : int32
  var path : int8[path_capacity]
  if not device_file(root, &path[0]) then
    return C.GLM_OK
  end
  status.fail_if(
    message, self.handle ~= nil, C.GLM_NOT_SUPPORTED, "found an NVIDIA driver (%.256s), but %.256s reports no GPU; %s", &path[0],
    &self.driver[0], advice
  )
  return status.fail(
    message, C.GLM_NOT_SUPPORTED, "found an NVIDIA driver (%.256s), but not %s: expected it on the loader's search path or in %s; %s",
    &path[0], library, [table.concat(folders, ", ")], advice
  )
end

terra Gpus:name_driver(symbol : &opaque)
  var info : C.Dl_info
  if C.dladdr(symbol, &info) ~= 0 and info.dli_fname ~= nil then
    C.snprintf(&self.driver[0], path_capacity, "%s", info.dli_fname)
  end
end

terra Gpus:ask_capability() : int32
  var attribute = C.dlsym(self.handle, "cuDeviceGetAttribute")
  if attribute == nil then
    return 0
  end
  var ask = [{ &int32, int32, int32 } -> { int32 }](attribute)
  var major, minor = 0, 0
  var code = ask(&major, major_attribute, 0)
  if code == 0 then
    code = ask(&minor, minor_attribute, 0)
  end
  self.capability = 10 * major + minor
  return code
end

terra Gpus:ask_driver(message : &C.glm_message) : int32
  var initialise = C.dlsym(self.handle, "cuInit")
  var count = C.dlsym(self.handle, "cuDeviceGetCount")
  status.fail_if(message, initialise == nil or count == nil, C.GLM_NOT_SUPPORTED, "%s is not an NVIDIA driver: it does not export cuInit or cuDeviceGetCount", library)
  self:name_driver(initialise)
  C.setenv("CUDA_MODULE_LOADING", "EAGER", 0)
  var code = [{ uint32 } -> { int32 }](initialise)(0)
  if code == 0 then
    code = [{ &int32 } -> { int32 }](count)(&self.count)
  end
  if code == 0 and self.count > 0 then
    code = self:ask_capability()
  end
  if code == 0 or code == no_device then
    return C.GLM_OK
  end
  return status.fail(
    message, C.GLM_NOT_SUPPORTED, "the NVIDIA driver %.512s failed with CUDA error %d; %s", &self.driver[0], code, advice
  )
end

terra Gpus:find(root : rawstring, message : &C.glm_message) : int32
  C.memset(self, 0, sizeof(Gpus))
  self.handle = gpus.open_driver(root)
  if self.handle ~= nil then
    status.try(self:ask_driver(message))
  end
  if self.count > 0 then
    return C.GLM_OK
  end
  return self:expect_none(root, message)
end

return gpus
