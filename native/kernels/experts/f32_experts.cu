#include <cuda_bf16.h>

#include <cstdint>

#include "native/base/cuda.hpp"
#include "native/kernels/experts/combine.hpp"
#include "native/kernels/experts/parameters.hpp"
#include "native/kernels/rows/swiglu.hpp"
#include "native/ptx/dependent_launch.hpp"

namespace glm::kernels::mixture {
namespace {

constexpr int32_t kRowWarps = 8;
constexpr int32_t kRowThreads = kRowWarps * kWarpThreads;
constexpr int32_t kTileElements = kTileRowBytes / 4;

__device__ float warp_sum(float value) {
#pragma unroll
  for (int32_t distance = kWarpThreads / 2; distance > 0; distance /= 2)
    value += __shfl_xor_sync(0xFFFFFFFFu, value, distance);
  return value;
}

template <typename Element>
__device__ float dot_packed_row(const StreamedMatrix& matrix, int32_t expert,
                                int32_t packed, const Element* input,
                                int32_t width) {
  int32_t lane = threadIdx.x % kWarpThreads;
  const uint8_t* tiles =
      matrix.data + expert * matrix.stride +
      int64_t{packed / kTileRows} * matrix.num_column_tiles * kTileBytes;
  int32_t offset = swizzle(packed % kTileRows, lane * 4);
  float sum = 0.0f;
  for (int32_t tile = 0; tile < matrix.num_column_tiles; ++tile) {
    int32_t element = tile * kTileElements + lane;
    if (element >= width) continue;
    float weight = *reinterpret_cast<const float*>(
        tiles + int64_t{tile} * kTileBytes + offset);
    sum = fmaf(weight, static_cast<float>(input[element]), sum);
  }
  return warp_sum(sum);
}

__device__ int32_t local_expert(const ExpertsParameters& p,
                                int32_t assignment) {
  return p.local.index_of(p.expert_ids[assignment]);
}

__global__ void gate_up_kernel(const __grid_constant__ ExpertsParameters p) {
  ptx::let_successor_start();
  ptx::wait_for_predecessor();
  int32_t assignment = blockIdx.y;
  int32_t expert = local_expert(p, assignment);
  int32_t channel = blockIdx.x * kRowWarps + threadIdx.x / kWarpThreads;
  if (expert < 0) return;
  const ExpertMatrices matrices = p.of_expert(expert);
  if (channel >= matrices.width) return;
  const __nv_bfloat16* input = reinterpret_cast<const __nv_bfloat16*>(
      p.input.data + assignment / p.top_k * p.input.row_stride);
  int32_t rows = 2 * matrices.width;
  int32_t packed = packed_row(GLM_MATRIX_GATE_UP, rows, channel);
  float gate =
      dot_packed_row(matrices.gate_up, expert, packed, input, p.hidden_size);
  float up = dot_packed_row(matrices.gate_up, expert, packed + kPairRows, input,
                            p.hidden_size);
  if (threadIdx.x % kWarpThreads != 0) return;
  p.hidden[int64_t{assignment} * p.hidden_stride + channel] = swiglu(gate, up);
}

__global__ void down_kernel(const __grid_constant__ ExpertsParameters p) {
  ptx::let_successor_start();
  ptx::wait_for_predecessor();
  int32_t assignment = blockIdx.y;
  int32_t expert = local_expert(p, assignment);
  int32_t row = blockIdx.x * kRowWarps + threadIdx.x / kWarpThreads;
  if (expert < 0 || row >= p.hidden_size) return;
  const float* input = p.hidden + int64_t{assignment} * p.hidden_stride;
  const ExpertMatrices matrices = p.of_expert(expert);
  float sum = dot_packed_row(matrices.down, expert, row, input, matrices.width);
  if (threadIdx.x % kWarpThreads == 0)
    p.partial[int64_t{assignment} * p.partial_stride + row] = sum;
}

__global__ void combine_kernel(const __grid_constant__ ExpertsParameters p) {
  ptx::let_successor_start();
  ptx::wait_for_predecessor();
  int32_t row = (blockIdx.x * kRowThreads + threadIdx.x) * kLaneRows;
  int32_t token = blockIdx.y;
  if (row < p.hidden_size) RowSum(p, token, row).add_tokens(token + 1, 1);
}

LaunchShape rows_of(int32_t num_rows, int32_t rows_per_block, int32_t others) {
  LaunchShape shape;
  shape.grid =
      dim3(static_cast<uint32_t>(ceil_divide(num_rows, rows_per_block)),
           static_cast<uint32_t>(others));
  shape.block = dim3(kRowThreads);
  return shape;
}

}

void launch_f32_experts(cudaStream_t stream, const ExpertsParameters& p) {
  launch("experts: F32 gate and up", stream,
         rows_of(p.routed.width, kRowWarps, p.num_assignments()),
         gate_up_kernel, p);
  launch("experts: F32 down", stream,
         rows_of(p.hidden_size, kRowWarps, p.num_assignments()), down_kernel,
         p);
  launch("experts: combine", stream,
         rows_of(p.hidden_size, kRowThreads * kLaneRows, p.num_tokens),
         combine_kernel, p);
}

}
