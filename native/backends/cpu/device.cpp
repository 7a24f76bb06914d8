#include "device.hpp"

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>
#include <string>

#include "lifecycle.hpp"
#include "native/base/failure.hpp"

namespace glm::cpu {
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

void close(glm_device* device) {
  if (device->context != nullptr) futhark_context_free(device->context);
  if (device->config != nullptr) futhark_context_config_free(device->config);
  delete device;
}

void start_kernels(glm_device& device, int32_t num_threads) {
  device.config = futhark_context_config_new();
  if (device.config == nullptr)
    throw Failure(GLM_OUT_OF_MEMORY,
                  "device_open: not enough host memory for a Futhark context");
  futhark_context_config_set_num_threads(device.config, num_threads);
  device.context = futhark_context_new(device.config);
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
  *count = 1;
}

void group_create(const glm_group_options* options, glm_group** group) {
  const char* where = "group_create";
  expect_pointer(where, "options", options);
  expect_pointer(where, "group", group);
  expect_equal(where, "struct_size", sizeof(glm_group_options),
               options->struct_size);
  expect_range(where, "world_size", 1, 4096, options->world_size);
  if (options->devices != nullptr)
    expect_each(where, "devices", 0, 0, options->devices, options->world_size);
  *group = new glm_group(options->world_size);
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
  std::snprintf(info->name, sizeof info->name, "CPU");
}

void device_info(glm_device&, glm_device_info* info) {
  kind_info(info);
  set_memory_info(info);
  set_processor_name(info);
}

void allocate(glm_device& device, int32_t kind, int64_t bytes, void** memory) {
  expect_range("allocate", "kind", GLM_MEMORY_OWN, GLM_MEMORY_SHARED, kind);
  host_allocate(device, bytes, memory);
}

void host_allocate(glm_device&, int64_t bytes, void** memory) {
  expect_range("allocate", "bytes", 0, INT64_MAX - kAlignment, bytes);
  expect_pointer("allocate", "memory", memory);
  void* const block = std::calloc(1, static_cast<size_t>(bytes + kAlignment));
  if (block == nullptr)
    throw Failure(GLM_OUT_OF_MEMORY, "allocate: cannot allocate " +
                                         std::to_string(bytes) + " bytes");
  void** const aligned = reinterpret_cast<void**>(
      (reinterpret_cast<uintptr_t>(block) / kAlignment + 1) * kAlignment);
  aligned[-1] = block;
  *memory = aligned;
}

void release(glm_device&, void* memory) {
  if (memory != nullptr) std::free(static_cast<void**>(memory)[-1]);
}

void transfer(glm_device&, void* destination, const void* source,
              int64_t bytes) {
  expect_range("transfer", "bytes", 0, INT64_MAX, bytes);
  if (bytes == 0) return;
  expect_pointer("transfer", "destination", destination);
  expect_pointer("transfer", "source", source);
  std::memmove(destination, source, static_cast<size_t>(bytes));
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
