#include <algorithm>
#include <string>

#include "native/backends/cuda/checked.hpp"
#include "native/backends/cuda/lifecycle.hpp"
#include "native/base/failure.hpp"
#include "native/kernels/host_copy/host_copy.hpp"

namespace glm::cuda {
namespace {

void expect_copy(const char* where, const void* destination, const void* source,
                 int64_t bytes) {
  expect_range(where, "bytes", 0, INT64_MAX, bytes);
  if (bytes == 0) return;
  expect_pointer(where, "destination", destination);
  expect_pointer(where, "source", source);
}

void check_allocation(glm_status status, const char* where, int64_t bytes) {
  if (status != GLM_OUT_OF_MEMORY) return check_call(status, where);
  int64_t free_bytes = 0, total_bytes = 0;
  check_call(cwCudaMemInfo(&free_bytes, &total_bytes), where);
  throw Failure(GLM_OUT_OF_MEMORY,
                std::string(where) + ": cannot allocate " +
                    std::to_string(bytes) + " bytes; the GPU has " +
                    std::to_string(free_bytes) + " of " +
                    std::to_string(total_bytes) + " bytes free");
}

}

void allocate(glm_device& device, int32_t kind, int64_t bytes, void** memory) {
  const char* where = "allocate";
  expect_no_capture(device, where);
  expect_range(where, "kind", GLM_MEMORY_OWN, GLM_MEMORY_SHARED, kind);
  expect_range(where, "bytes", 0, INT64_MAX, bytes);
  expect_pointer(where, "memory", memory);
  const int64_t size = std::max<int64_t>(bytes, 1);
  check_allocation(cwCudaMalloc(memory, size), where, bytes);
  check_call(cwCudaMemset(*memory, 0, size, wrapped(device.stream)), where);
  check_call(cwCudaStreamSync(wrapped(device.stream)), where);
}

void release(glm_device& device, void* memory) {
  expect_no_capture(device, "release");
  if (memory != nullptr) check_call(cwCudaFree(memory), "release");
}

void host_allocate(glm_device& device, int64_t bytes, void** memory) {
  const char* where = "host_allocate";
  expect_no_capture(device, where);
  expect_range(where, "bytes", 0, INT64_MAX, bytes);
  expect_pointer(where, "memory", memory);
  const int64_t size = std::max<int64_t>(bytes, 1);
  check_allocation(cwCudaMallocHost(memory, size), where, bytes);
}

void host_release(glm_device& device, void* memory) {
  expect_no_capture(device, "host_release");
  if (memory != nullptr) check_call(cwCudaFreeHost(memory), "host_release");
}

void upload(glm_device& device, void* destination, const void* source,
            int64_t bytes) {
  const char* where = "upload";
  expect_copy(where, destination, source, bytes);
  if (bytes == 0) return;
  const kernels::HostCopy copy = {destination, source, bytes};
  if (kernels::is_short_copy(where, copy, cudaMemoryTypeHost,
                             cudaMemoryTypeDevice))
    return kernels::host_copy(where, device.stream, copy);
  check_call(
      cwCudaMemcpyH2D(destination, source, bytes, wrapped(device.stream)),
      where);
}

void download_begin(glm_device& device, void* destination, const void* source,
                    int64_t bytes) {
  const char* where = "download";
  expect_no_capture(device, where);
  expect_copy(where, destination, source, bytes);
  if (bytes == 0) return;
  const kernels::HostCopy copy = {destination, source, bytes};
  if (kernels::is_short_copy(where, copy, cudaMemoryTypeDevice,
                             cudaMemoryTypeHost))
    return kernels::host_copy(where, device.stream, copy);
  check_call(
      cwCudaMemcpyD2H(destination, source, bytes, wrapped(device.stream)),
      where);
}

void download(glm_device& device, void* destination, const void* source,
              int64_t bytes) {
  download_begin(device, destination, source, bytes);
  check_call(cwCudaStreamSync(wrapped(device.stream)), "download");
  expect_group(device, "download");
}

void synchronise(glm_device& device) {
  expect_no_capture(device, "synchronise");
  check_call(cwCudaStreamSync(wrapped(device.stream)), "synchronise");
  expect_group(device, "synchronise");
}

}
