#include <cstdint>

#include "native/base/cuda.hpp"
#include "native/kernels/experts/parameters.hpp"
#include "native/ptx/dependent_launch.hpp"

namespace glm::kernels::mixture {
namespace {

constexpr int32_t kPadThreads = 256;

__global__ void pad_rows_kernel(const PadRows rows) {
  ptx::let_successor_start();
  ptx::wait_for_predecessor();
  int64_t row = blockIdx.x;
  const uint8_t* source = rows.source + row * rows.row_bytes;
  uint8_t* destination = rows.destination + row * rows.padded_bytes;
  for (int32_t i = threadIdx.x; i < rows.padded_bytes; i += kPadThreads)
    destination[i] = i < rows.row_bytes ? source[i] : 0;
}

}

void launch_pad_rows(cudaStream_t stream, const PadRows& rows) {
  LaunchShape shape;
  shape.grid = dim3(static_cast<uint32_t>(rows.num_rows));
  shape.block = dim3(kPadThreads);
  launch("experts: row padding", stream, shape, pad_rows_kernel, rows);
}

}
