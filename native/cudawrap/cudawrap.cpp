#define GLM_CUDAWRAP_IMPLEMENTATION
extern "C" {
#include "glm/cudawrap.h"
}

#include <cuda_runtime.h>

#include <cstdlib>

#include "native/base/call_report.hpp"

namespace {

__attribute__((constructor(101))) void load_kernels_at_once() {
  setenv("CUDA_MODULE_LOADING", "EAGER", 0);
}

glm_status status_of(cudaError_t error) {
  switch (error) {
    case cudaSuccess:
      return GLM_OK;
    case cudaErrorMemoryAllocation:
      return GLM_OUT_OF_MEMORY;
    case cudaErrorInvalidValue:
    case cudaErrorInvalidDevice:
    case cudaErrorInvalidResourceHandle:
    case cudaErrorNotReady:
      return GLM_INVALID_ARGUMENT;
    case cudaErrorNoDevice:
    case cudaErrorInsufficientDriver:
      return GLM_NOT_SUPPORTED;
    default:
      return GLM_DEVICE_ERROR;
  }
}

glm_status report(const char* call, cudaError_t error) {
  if (error != cudaSuccess) cudaGetLastError();
  return glm::report(
      call, {status_of(error), static_cast<int>(error), cudaGetErrorName(error),
             cudaGetErrorString(error)});
}

cudaStream_t native(cw_stream* stream) {
  return reinterpret_cast<cudaStream_t>(stream);
}

cudaEvent_t native(cw_event* event) {
  return reinterpret_cast<cudaEvent_t>(event);
}

glm_status copy(const char* call, void* destination, const void* source,
                int64_t bytes, cudaMemcpyKind kind, cw_stream* stream) {
  if (bytes < 0) return glm::report_argument(call, "bytes is negative");
  return report(call,
                cudaMemcpyAsync(destination, source, static_cast<size_t>(bytes),
                                kind, native(stream)));
}

}

extern "C" {

void cwCudaLastMessage(glm_message* message) {
  glm::copy_last_message(message);
}

glm_status cwCudaDeviceCount(int32_t* count) {
  return report("cwCudaDeviceCount", cudaGetDeviceCount(count));
}

glm_status cwCudaSetDevice(int32_t device) {
  return report("cwCudaSetDevice", cudaSetDevice(device));
}

glm_status cwCudaDeviceSync(void) {
  return report("cwCudaDeviceSync", cudaDeviceSynchronize());
}

glm_status cwCudaMemInfo(int64_t* free_bytes, int64_t* total_bytes) {
  const char* call = "cwCudaMemInfo";
  if (free_bytes == nullptr || total_bytes == nullptr)
    return glm::report_argument(call, "free_bytes or total_bytes is null");
  size_t free_size = 0, total_size = 0;
  const cudaError_t error = cudaMemGetInfo(&free_size, &total_size);
  *free_bytes = static_cast<int64_t>(free_size);
  *total_bytes = static_cast<int64_t>(total_size);
  return report(call, error);
}

glm_status cwCudaMalloc(void** memory, int64_t bytes) {
  const char* call = "cwCudaMalloc";
  if (bytes < 0) return glm::report_argument(call, "bytes is negative");
  return report(call, cudaMalloc(memory, static_cast<size_t>(bytes)));
}

glm_status cwCudaFree(void* memory) {
  return report("cwCudaFree", cudaFree(memory));
}

glm_status cwCudaMallocHost(void** memory, int64_t bytes) {
  const char* call = "cwCudaMallocHost";
  if (bytes < 0) return glm::report_argument(call, "bytes is negative");
  return report(call, cudaHostAlloc(memory, static_cast<size_t>(bytes),
                                    cudaHostAllocPortable));
}

glm_status cwCudaFreeHost(void* memory) {
  return report("cwCudaFreeHost", cudaFreeHost(memory));
}

glm_status cwCudaMemcpyH2D(void* destination, const void* source, int64_t bytes,
                           cw_stream* stream) {
  return copy("cwCudaMemcpyH2D", destination, source, bytes,
              cudaMemcpyHostToDevice, stream);
}

glm_status cwCudaMemcpyD2H(void* destination, const void* source, int64_t bytes,
                           cw_stream* stream) {
  return copy("cwCudaMemcpyD2H", destination, source, bytes,
              cudaMemcpyDeviceToHost, stream);
}

glm_status cwCudaMemcpyD2D(void* destination, const void* source, int64_t bytes,
                           cw_stream* stream) {
  return copy("cwCudaMemcpyD2D", destination, source, bytes,
              cudaMemcpyDeviceToDevice, stream);
}

glm_status cwCudaMemset(void* destination, int32_t value, int64_t bytes,
                        cw_stream* stream) {
  const char* call = "cwCudaMemset";
  if (bytes < 0) return glm::report_argument(call, "bytes is negative");
  return report(call,
                cudaMemsetAsync(destination, value, static_cast<size_t>(bytes),
                                native(stream)));
}

glm_status cwCudaStreamCreate(cw_stream** stream) {
  return report(
      "cwCudaStreamCreate",
      cudaStreamCreateWithFlags(reinterpret_cast<cudaStream_t*>(stream),
                                cudaStreamNonBlocking));
}

glm_status cwCudaStreamDestroy(cw_stream* stream) {
  return report("cwCudaStreamDestroy", cudaStreamDestroy(native(stream)));
}

glm_status cwCudaStreamSync(cw_stream* stream) {
  return report("cwCudaStreamSync", cudaStreamSynchronize(native(stream)));
}

glm_status cwCudaEventCreate(cw_event** event) {
  return report("cwCudaEventCreate",
                cudaEventCreate(reinterpret_cast<cudaEvent_t*>(event)));
}

glm_status cwCudaEventDestroy(cw_event* event) {
  return report("cwCudaEventDestroy", cudaEventDestroy(native(event)));
}

glm_status cwCudaEventRecord(cw_event* event, cw_stream* stream) {
  return report("cwCudaEventRecord",
                cudaEventRecord(native(event), native(stream)));
}

glm_status cwCudaEventQuery(cw_event* event, int32_t* has_passed) {
  const char* call = "cwCudaEventQuery";
  if (has_passed == nullptr)
    return glm::report_argument(call, "has_passed is null");
  const cudaError_t error = cudaEventQuery(native(event));
  *has_passed = error == cudaSuccess;
  return report(call, error == cudaErrorNotReady ? cudaSuccess : error);
}

glm_status cwCudaEventSync(cw_event* event) {
  return report("cwCudaEventSync", cudaEventSynchronize(native(event)));
}

glm_status cwCudaEventElapsed(cw_event* begin, cw_event* end,
                              float* milliseconds) {
  return report("cwCudaEventElapsed",
                cudaEventElapsedTime(milliseconds, native(begin), native(end)));
}
}
