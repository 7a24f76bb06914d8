#include "device.hpp"

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>
#include <string>

#include "host_memory.hpp"
#include "lifecycle.hpp"
#include "native/base/failure.hpp"
#include "platform.hpp"

namespace glm::adapter {
namespace {

void expect_options(const glm_device_options& options) {
  const char* where = "device_open";
  expect_equal(where, "struct_size", sizeof(glm_device_options),
               options.struct_size);
  expect_range(where, "world_size", 1, INT32_MAX, options.world_size);
  expect_range(where, "rank", 0, options.world_size - 1, options.rank);
  expect_range(where, "num_threads", 0, 4096, options.num_threads);
  if (options.group != nullptr)
    expect_equal(where, "world_size with this group",
                 options.group->ranks.world_size(), options.world_size);
  else
    expect_equal(where, "world_size without a group", 1, options.world_size);
}

void stop_kernels(glm_device& device) {
  try {
    if (device.context != nullptr) {
      platform::enter(device);
      futhark_context_free(device.context);
    }
    if (device.config != nullptr) futhark_context_config_free(device.config);
  } catch (const Failure&) {
    device.is_lost = true;
  }
}

void close(glm_device* device) {
  if (!device->is_lost) stop_kernels(*device);
  delete device;
}

void start_kernels(glm_device& device, int32_t num_threads) {
  device.config = futhark_context_config_new();
  if (device.config == nullptr)
    throw Failure(GLM_OUT_OF_MEMORY,
                  "device_open: not enough host memory for a Futhark context");
  platform::open(device, num_threads);
  if (device.context == nullptr)
    throw Failure(GLM_OUT_OF_MEMORY,
                  "device_open: not enough host memory for a Futhark context");
  char* text = futhark_context_get_error(device.context);
  if (text == nullptr) return;
  const std::string message = text;
  std::free(text);
  throw Failure(GLM_DEVICE_ERROR, "device_open: " + message);
}

}

void device_count(int32_t* count) {
  expect_pointer("device_count", "count", count);
  *count = platform::num_devices();
}

void group_create(const glm_group_options* options, glm_group** group) {
  const char* where = "group_create";
  expect_pointer(where, "options", options);
  expect_pointer(where, "group", group);
  expect_equal(where, "struct_size", sizeof(glm_group_options),
               options->struct_size);
  expect_range(where, "world_size", 1, 4096, options->world_size);
  if (options->devices != nullptr)
    expect_each(where, "devices", 0, platform::num_devices() - 1,
                options->devices, options->world_size);
  std::vector<int32_t> devices(static_cast<size_t>(options->world_size));
  for (int32_t rank = 0; rank < options->world_size; ++rank)
    devices[static_cast<size_t>(rank)] = options->devices == nullptr
                                             ? platform::device_of_rank(rank)
                                             : options->devices[rank];
  *group = new glm_group(std::move(devices));
}

void device_open(const glm_device_options* options, glm_device** device) {
  expect_pointer("device_open", "options", options);
  expect_pointer("device_open", "device", device);
  expect_options(*options);
  std::unique_ptr<glm_device, void (*)(glm_device*)> opened(new glm_device,
                                                            close);
  opened->group = options->group;
  opened->rank = options->rank;
  opened->world_size = options->world_size;
  if (options->group != nullptr)
    opened->ordinal =
        options->group->devices[static_cast<size_t>(options->rank)];
  start_kernels(*opened, options->num_threads);
  *device = opened.release();
}

void device_close(glm_device* device) {
  if (device != nullptr) close(device);
}

void kind_info(glm_device_info* info) {
  expect_pointer("device_info", "info", info);
  expect_equal("device_info", "struct_size", sizeof(glm_device_info),
               info->struct_size);
  info->activation_dtype = GLM_DTYPE_F32;
  info->default_kv_dtype = GLM_DTYPE_F32;
  info->supports_graphs = 0;
  info->page_size_multiple = 1;
  info->is_asynchronous = 0;
  info->merges_shared_expert = 0;
  info->has_one_attention = 1;
  info->fewest_scattered_rows = kFewestScatteredRows;
  info->memory_total_bytes = 0;
  info->memory_free_bytes = 0;
  platform::describe(nullptr, info);
}

void device_info(glm_device& device, glm_device_info* info) {
  kind_info(info);
  platform::describe(&device, info);
}

namespace {

void expect_allocation(int64_t bytes, void** memory) {
  expect_range("allocate", "bytes", 0, INT64_MAX - kAlignment, bytes);
  expect_pointer("allocate", "memory", memory);
}

}

void allocate(glm_device&, int32_t kind, int64_t bytes, void** memory) {
  expect_range("allocate", "kind", GLM_MEMORY_OWN, GLM_MEMORY_SHARED, kind);
  expect_allocation(bytes, memory);
  *memory = platform::allocate(bytes);
}

void release(glm_device&, void* memory) {
  if (memory != nullptr) platform::release(memory);
}

void host_allocate(glm_device&, int64_t bytes, void** memory) {
  expect_allocation(bytes, memory);
  *memory = allocate_host(bytes);
}

void host_release(glm_device&, void* memory) { release_host(memory); }

void transfer(glm_device&, void* destination, const void* source,
              int64_t bytes) {
  expect_range("transfer", "bytes", 0, INT64_MAX, bytes);
  if (bytes == 0) return;
  expect_pointer("transfer", "destination", destination);
  expect_pointer("transfer", "source", source);
  platform::copy("transfer", destination, source, bytes);
}

void synchronise(glm_device& device) {
  if (futhark_context_sync(device.context) != FUTHARK_SUCCESS)
    throw Failure(GLM_DEVICE_ERROR, "synchronise: the Futhark context failed");
}

void workspace_bytes(const glm_workspace_shape* shape, int64_t* bytes) {
  expect_pointer("workspace_bytes", "shape", shape);
  expect_pointer("workspace_bytes", "bytes", bytes);
  expect_equal("workspace_bytes", "struct_size", sizeof(glm_workspace_shape),
               shape->struct_size);
  *bytes = 0;
}

void set_workspace(glm_device&, const glm_workspace_shape* shape, void*,
                   int64_t bytes) {
  int64_t needed = 0;
  workspace_bytes(shape, &needed);
  expect_range("set_workspace", "bytes", needed, INT64_MAX, bytes);
}

}
