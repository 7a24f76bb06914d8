#include "native/base/cuda.hpp"
#include "native/kernels/layout.hpp"
#include "native/kernels/measure_read/measure_read.hpp"
#include "native/ptx/dependent_launch.hpp"

namespace glm::kernels {
namespace {

constexpr int32_t kThreads = 1024;
constexpr int32_t kLoads = 4;
constexpr int32_t kBlocksAMultiprocessor = 2;

__device__ uint32_t load(const uint4* address) {
  uint4 value;
  asm volatile("ld.global.nc.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(value.x), "=r"(value.y), "=r"(value.z), "=r"(value.w)
               : "l"(address));
  return value.x ^ value.y ^ value.z ^ value.w;
}

__global__ void __launch_bounds__(kThreads)
    read_memory_kernel(const uint4* memory, int64_t count,
                       uint32_t* unless_null) {
  ptx::wait_for_predecessor();
  ptx::let_successor_start();
  uint32_t total = 0;
  int64_t step = int64_t{gridDim.x} * kThreads * kLoads;
  for (int64_t begin = int64_t{blockIdx.x} * kThreads * kLoads + threadIdx.x;
       begin < count; begin += step) {
    uint32_t values[kLoads];
#pragma unroll
    for (int32_t i = 0; i < kLoads; ++i)
      values[i] = load(memory + min(begin + i * kThreads, count - 1));
#pragma unroll
    for (uint32_t value : values) total ^= value;
  }
  if (unless_null != nullptr) *unless_null = total;
}

}

void read_memory(const Context& context, const void* memory, int64_t bytes) {
  int32_t blocks = context.num_multiprocessors * kBlocksAMultiprocessor;
  launch("measure_read", context.stream,
         {dim3(static_cast<uint32_t>(blocks)), dim3(kThreads)},
         read_memory_kernel, static_cast<const uint4*>(memory),
         bytes / kChunkBytes, nullptr);
}

}
