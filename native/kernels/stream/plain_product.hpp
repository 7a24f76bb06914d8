#ifndef GLM_KERNELS_STREAM_PLAIN_PRODUCT_HPP
#define GLM_KERNELS_STREAM_PLAIN_PRODUCT_HPP

#include <cuda_bf16.h>

#include <cstdint>

#include "native/base/cuda.hpp"
#include "native/kernels/context.hpp"
#include "native/kernels/layout.hpp"
#include "native/kernels/stream/product_args.hpp"
#include "native/ptx/dependent_launch.hpp"

namespace glm::kernels::stream {

constexpr int32_t kPlainTokens = 8;
constexpr int32_t kPlainWarps = 8;
constexpr int32_t kPlainLanes = 32;

__device__ inline float plain_input(const TokenRows& tokens, int32_t row,
                                    int32_t column) {
  const uint8_t* source = tokens.data + int64_t{row} * tokens.row_bytes +
                          column * sizeof(__nv_bfloat16);
  return __bfloat162float(*reinterpret_cast<const __nv_bfloat16*>(source));
}

__device__ inline float add_over_warp(float value) {
#pragma unroll
  for (int32_t offset = kPlainLanes / 2; offset > 0; offset /= 2) {
    value += __shfl_xor_sync(0xffffffffu, value, offset);
  }
  return value;
}

__device__ inline void add_columns(float (&sum)[kPlainTokens],
                                   const ProductArgs& args, int32_t packed,
                                   int32_t first_token, int32_t lane) {
  int32_t width = args.columns;
  for (int32_t column = lane; column < width; column += kPlainLanes) {
    int64_t offset = packed_offset(GLM_DTYPE_F32, width, packed, column);
    float weight = *reinterpret_cast<const float*>(args.tiles + offset);
#pragma unroll
    for (int32_t i = 0; i < kPlainTokens; ++i) {
      if (first_token + i < args.tokens.num_rows) {
        sum[i] += weight * plain_input(args.tokens, first_token + i, column);
      }
    }
  }
}

template <typename Output>
__global__ void plain_product(const __grid_constant__ ProductArgs args) {
  ptx::let_successor_start();
  ptx::wait_for_predecessor();
  int32_t lane = static_cast<int32_t>(threadIdx.x) % kPlainLanes;
  int32_t warp = static_cast<int32_t>(threadIdx.x) / kPlainLanes;
  int32_t row = static_cast<int32_t>(blockIdx.x) * kPlainWarps + warp;
  int32_t first_token = static_cast<int32_t>(blockIdx.y) * kPlainTokens;
  if (row >= args.rows) return;
  float sum[kPlainTokens] = {};
  add_columns(sum, args, packed_row(args.role, args.rows, row), first_token,
              lane);
  float bias = args.bias ? args.bias[row] : 0.0f;
#pragma unroll
  for (int32_t i = 0; i < kPlainTokens; ++i) {
    float total = add_over_warp(sum[i]) + bias;
    int32_t token = first_token + i;
    if (lane != 0 || token >= args.tokens.num_rows) continue;
    static_cast<Output*>(args.output)[int64_t{token} * args.rows + row] =
        static_cast<Output>(total);
  }
}

template <typename Output>
void launch_plain_product(const char* where, const Context& context,
                          const ProductArgs& args) {
  uint32_t row_blocks =
      static_cast<uint32_t>(ceil_divide(args.rows, kPlainWarps));
  uint32_t token_blocks =
      static_cast<uint32_t>(ceil_divide(args.tokens.num_rows, kPlainTokens));
  LaunchShape shape{dim3(row_blocks, token_blocks),
                    dim3(kPlainWarps * kPlainLanes)};
  launch(where, context.stream, shape, plain_product<Output>, args);
}

}

#endif
