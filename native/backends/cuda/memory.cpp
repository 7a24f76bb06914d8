#include <string>

#include "native/backends/cuda/lifecycle.hpp"
#include "native/base/cuda.hpp"
#include "native/base/failure.hpp"

namespace glm::cuda {
namespace {

void expect_copy(const char* where, const void* destination, const void* source,
                 int64_t bytes) {
  expect_range(where, "bytes", 0, INT64_MAX, bytes);
  if (bytes == 0) return;
  expect_pointer(where, "destination", destination);
  expect_pointer(where, "source", source);
}

void check_allocation(cudaError_t error, const char* where, int64_t bytes) {
  if (error != cudaErrorMemoryAllocation) return check(error, where);
  cudaGetLastError();
  size_t free_bytes = 0, total = 0;
  check(cudaMemGetInfo(&free_bytes, &total), where);
  throw Failure(GLM_OUT_OF_MEMORY, std::string(where) + ": expected " +
                                       std::to_string(bytes) +
                                       " bytes, got none; the device has " +
                                       std::to_string(free_bytes) + " of " +
                                       std::to_string(total) + " bytes free");
}

}

void allocate(glm_device& device, int64_t bytes, void** memory) {
  const char* where = "allocate";
  expect_no_capture(device, where);
  expect_range(where, "bytes", 0, INT64_MAX, bytes);
  expect_pointer(where, "memory", memory);
  const size_t size = static_cast<size_t>(bytes > 0 ? bytes : 1);
  check_allocation(cudaMalloc(memory, size), where, bytes);
  check(cudaMemsetAsync(*memory, 0, size, device.stream), where);
  check(cudaStreamSynchronize(device.stream), where);
}

void release(glm_device& device, void* memory) {
  expect_no_capture(device, "release");
  if (memory != nullptr) check(cudaFree(memory), "release");
}

void host_allocate(glm_device& device, int64_t bytes, void** memory) {
  const char* where = "host_allocate";
  expect_no_capture(device, where);
  expect_range(where, "bytes", 0, INT64_MAX, bytes);
  expect_pointer(where, "memory", memory);
  const size_t size = static_cast<size_t>(bytes > 0 ? bytes : 1);
  check_allocation(cudaHostAlloc(memory, size, cudaHostAllocPortable), where,
                   bytes);
}

void host_release(glm_device& device, void* memory) {
  expect_no_capture(device, "host_release");
  if (memory != nullptr) check(cudaFreeHost(memory), "host_release");
}

void upload(glm_device& device, void* destination, const void* source,
            int64_t bytes) {
  expect_copy("upload", destination, source, bytes);
  if (bytes == 0) return;
  check(cudaMemcpyAsync(destination, source, static_cast<size_t>(bytes),
                        cudaMemcpyHostToDevice, device.stream),
        "upload");
}

void download_begin(glm_device& device, void* destination, const void* source,
                    int64_t bytes) {
  const char* where = "download";
  expect_no_capture(device, where);
  expect_copy(where, destination, source, bytes);
  if (bytes == 0) return;
  check(cudaMemcpyAsync(destination, source, static_cast<size_t>(bytes),
                        cudaMemcpyDeviceToHost, device.stream),
        where);
}

void download(glm_device& device, void* destination, const void* source,
              int64_t bytes) {
  download_begin(device, destination, source, bytes);
  check(cudaStreamSynchronize(device.stream), "download");
}

void fill_zero(glm_device& device, void* destination, int64_t bytes) {
  expect_range("fill_zero", "bytes", 0, INT64_MAX, bytes);
  if (bytes == 0) return;
  expect_pointer("fill_zero", "destination", destination);
  check(cudaMemsetAsync(destination, 0, static_cast<size_t>(bytes),
                        device.stream),
        "fill_zero");
}

void synchronise(glm_device& device) {
  expect_no_capture(device, "synchronise");
  check(cudaStreamSynchronize(device.stream), "synchronise");
}

}
