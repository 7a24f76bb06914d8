#include "native/backends/adapter/platform.hpp"

#include <chrono>
#include <cstdarg>
#include <cstdio>

#include "native/base/failure.hpp"
#include "nvidia_driver.hpp"
#include "program_cache.hpp"

namespace glm::adapter::platform {
namespace {

constexpr char kWhere[] = "device futhark";
constexpr int kOwnMemory = 0;
constexpr size_t kShareOfResults = 10;
constexpr size_t kLongestMessage = 2000;
thread_local char last_message[kLongestMessage];
thread_local glm_device* entered = nullptr;

[[noreturn]] void lose() {
  if (entered != nullptr) entered->is_lost = true;
  throw Failure(GLM_DEVICE_ERROR, last_message);
}

}

const char kKind[] = "futhark";

int32_t num_devices() {
  int count = 0;
  check_driver(kWhere, cuInit(0));
  check_driver(kWhere, cuDeviceGetCount(&count));
  return count;
}

int32_t device_of_rank(int32_t rank) { return rank; }

void open(glm_device& device, int32_t) {
  expect_range("device_open", "GPU", 0, num_devices() - 1, device.ordinal);
  expect_recent_driver();
  CUcontext primary = nullptr;
  check_driver(kWhere, cuDevicePrimaryCtxRetain(&primary, device.ordinal));
  device.native_context = primary;
  enter(device);
  const ProgramCache cache(device.ordinal);
  char number[16] = "";
  std::snprintf(number, sizeof number, "#%d", device.ordinal);
  futhark_context_config_set_device(device.config, number);
  futhark_context_config_set_unified_memory(device.config, kOwnMemory);
  futhark_context_config_add_nvrtc_option(device.config, "-fmad=false");
  if (cache.path() != nullptr)
    futhark_context_config_set_cache_file(device.config, cache.path());
  device.context = futhark_context_new(device.config);
  cache.keep();
}

void enter(glm_device& device) {
  if (device.is_lost)
    throw Failure(GLM_DEVICE_ERROR,
                  "the GPU failed before; close and open the device again");
  entered = &device;
  check_driver(kWhere,
               cuCtxSetCurrent(static_cast<CUcontext>(device.native_context)));
}

void describe(glm_device* device, glm_device_info* info) {
  std::snprintf(info->name, sizeof info->name, "Futhark");
  if (device == nullptr) return;
  size_t free = 0, total = 0;
  char name[100] = "";
  check_driver("device_info", cuMemGetInfo(&free, &total));
  check_driver("device_info",
               cuDeviceGetName(name, sizeof name, device->ordinal));
  const size_t results = total / kShareOfResults;
  info->memory_free_bytes =
      static_cast<int64_t>(free > results ? free - results : 0);
  info->memory_total_bytes = static_cast<int64_t>(total);
  std::snprintf(info->name, sizeof info->name, "Futhark, %s", name);
}

double read_seconds(glm_device&, const void* memory, int64_t bytes,
                    int64_t repeats) {
  const char* where = "measure_read";
  void* const scratch = allocate(bytes);
  copy(where, scratch, memory, bytes);
  check_driver(where, cuCtxSynchronize());
  const auto begin = std::chrono::steady_clock::now();
  for (int64_t i = 0; i < repeats; ++i) copy(where, scratch, memory, bytes);
  check_driver(where, cuCtxSynchronize());
  const auto end = std::chrono::steady_clock::now();
  release(scratch);
  return std::chrono::duration<double>(end - begin).count() / 2;
}

void* allocate(int64_t bytes) {
  CUdeviceptr memory = 0;
  const int64_t size = bytes > 0 ? bytes : 1;
  check_driver("allocate", cuMemAlloc(&memory, static_cast<size_t>(size)));
  void* const address = reinterpret_cast<void*>(memory);
  clear("allocate", address, size);
  return address;
}

void release(void* memory) { cuMemFree(memory_at(memory)); }

void copy(const char* where, void* destination, const void* source,
          int64_t bytes) {
  if (bytes > 0)
    check_driver(where, cuMemcpy(memory_at(destination), memory_at(source),
                                 static_cast<size_t>(bytes)));
}

void clear(const char* where, void* memory, int64_t bytes) {
  if (bytes > 0)
    check_driver(where,
                 cuMemsetD8(memory_at(memory), 0, static_cast<size_t>(bytes)));
}

}

extern "C" int glm_futhark_message(FILE*, const char* format,
                                   va_list arguments) {
  return std::vsnprintf(glm::adapter::platform::last_message,
                        sizeof glm::adapter::platform::last_message, format,
                        arguments);
}

extern "C" [[noreturn]] void glm_futhark_exit(int) {
  glm::adapter::platform::lose();
}
