#include <cuda_bf16.h>

#include "native/base/cuda.hpp"
#include "native/kernels/blackwell/swiglu.hpp"
#include "native/kernels/layout.hpp"
#include "native/kernels/quantise/codes.hpp"
#include "native/kernels/rows/swiglu.hpp"
#include "native/ptx/dependent_launch.hpp"

namespace glm::kernels::blackwell {

constexpr int32_t kGateThreads = 256;
constexpr int32_t kGateWarps = kGateThreads / 32;
constexpr int32_t kGateBlocks = 8;

__device__ inline float gated(const float* gate, int32_t width,
                              int32_t channel) {
  return kernels::swiglu(gate[channel], gate[width + channel]);
}

__device__ inline float largest_of_row(const float* gate, int32_t width,
                                       float* warps) {
  float largest = 0.0f;
  for (auto i = static_cast<int32_t>(threadIdx.x); i < width; i += kGateThreads)
    largest = fmaxf(largest, fabsf(gated(gate, width, i)));
  for (int32_t step = 16; step > 0; step /= 2)
    largest = fmaxf(largest, __shfl_xor_sync(~0u, largest, step));
  __syncthreads();
  if (threadIdx.x % 32 == 0) warps[threadIdx.x / 32] = largest;
  __syncthreads();
  for (int32_t warp = 0; warp < kGateWarps; ++warp)
    largest = fmaxf(largest, warps[warp]);
  return largest;
}

__device__ inline void encode_row(const GatedRows& rows, const float* gate,
                                  int64_t row, float* warps) {
  const float scale = row_scale_of(largest_of_row(gate, rows.width, warps));
  const RowQuotient quotient(scale);
  auto* codes = static_cast<uint8_t*>(rows.hidden) + row * rows.hidden_pitch;
  for (auto i = static_cast<int32_t>(threadIdx.x); i < rows.width;
       i += kGateThreads)
    codes[i] = static_cast<uint8_t>(
        encode_pair(quotient(gated(gate, rows.width, i)), 0.0f));
  if (threadIdx.x == 0) rows.row_scale[row] = scale;
}

__device__ inline void narrow_row(const GatedRows& rows, const float* gate,
                                  int64_t row) {
  auto* hidden =
      static_cast<__nv_bfloat16*>(rows.hidden) + row * rows.hidden_pitch;
  for (auto i = static_cast<int32_t>(threadIdx.x); i < rows.width;
       i += kGateThreads)
    hidden[i] = __float2bfloat16_rn(gated(gate, rows.width, i));
}

__global__ __launch_bounds__(kGateThreads) void gate_rows_kernel(
    GatedRows rows) {
  __shared__ float warps[kGateWarps];
  ptx::wait_for_predecessor();
  ptx::let_successor_start();
  const int32_t num_rows = rows.expert_begin[rows.num_experts];
  for (auto row = rows.expert_begin[0] + static_cast<int32_t>(blockIdx.x);
       row < num_rows; row += static_cast<int32_t>(gridDim.x)) {
    const float* gate = rows.gate_up + int64_t{row} * rows.gate_up_pitch;
    if (rows.dtype == GLM_DTYPE_F8_E4M3)
      encode_row(rows, gate, row, warps);
    else
      narrow_row(rows, gate, row);
  }
}

void gate_rows(const Context& context, const GatedRows& rows) {
  LaunchShape shape;
  shape.grid =
      dim3(static_cast<uint32_t>(context.num_multiprocessors * kGateBlocks));
  shape.block = dim3(kGateThreads);
  launch("blackwell experts: gate", context.stream, shape, gate_rows_kernel,
         rows);
}

}
