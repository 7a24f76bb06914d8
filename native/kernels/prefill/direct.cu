#include <cuda_bf16.h>
#include <cuda_fp8.h>

#include "native/base/cuda.hpp"
#include "native/kernels/layout.hpp"
#include "native/kernels/prefill/direct.hpp"
#include "native/ptx/dependent_launch.hpp"

namespace glm::kernels::prefill {
namespace {

constexpr int32_t kWarps = 8;
constexpr int32_t kThreads = kWarps * 32;

template <int32_t dtype>
__device__ float element(const uint8_t* bytes);

template <>
__device__ float element<GLM_DTYPE_F32>(const uint8_t* bytes) {
  return *reinterpret_cast<const float*>(bytes);
}

template <>
__device__ float element<GLM_DTYPE_BF16>(const uint8_t* bytes) {
  return __bfloat162float(*reinterpret_cast<const __nv_bfloat16*>(bytes));
}

template <>
__device__ float element<GLM_DTYPE_F8_E4M3>(const uint8_t* bytes) {
  return static_cast<float>(*reinterpret_cast<const __nv_fp8_e4m3*>(bytes));
}

__device__ float sum_of_warp(float value) {
  for (int32_t step = 16; step > 0; step /= 2)
    value += __shfl_xor_sync(~0u, value, step);
  return value;
}

template <int32_t dtype, int32_t token_dtype>
__device__ float dot(const uint8_t* weights, int32_t columns, int32_t packed,
                     const uint8_t* token) {
  float sum = 0.0f;
  for (int32_t k = static_cast<int32_t>(threadIdx.x) % 32; k < columns; k += 32)
    sum += element<dtype>(weights + packed_offset(dtype, columns, packed, k)) *
           element<token_dtype>(token + k * dtype_bytes(token_dtype));
  return sum_of_warp(sum);
}

struct Item {
  int64_t row;
  int32_t channel;
};

__device__ Item item_of_warp(int32_t channels) {
  const int64_t index =
      int64_t{blockIdx.x} * kWarps + static_cast<int32_t>(threadIdx.x) / 32;
  return {index / channels, static_cast<int32_t>(index % channels)};
}

__device__ bool is_first_lane() { return threadIdx.x % 32 == 0; }

template <int32_t dtype, int32_t token_dtype>
__global__ __launch_bounds__(kThreads) void linear_kernel(DirectLinear direct) {
  ptx::wait_for_predecessor();
  ptx::let_successor_start();
  const glm_matrix& matrix = direct.matrix;
  const Item item = item_of_warp(matrix.rows);
  if (item.row >= direct.num_tokens) return;
  const auto* token = static_cast<const uint8_t*>(direct.tokens) +
                      item.row * matrix.columns * dtype_bytes(token_dtype);
  float value = dot<dtype, token_dtype>(
      static_cast<const uint8_t*>(matrix.data), matrix.columns,
      packed_row(matrix.role, matrix.rows, item.channel), token);
  if (!is_first_lane()) return;
  if (dtype == GLM_DTYPE_F8_E4M3)
    value *= direct.token_scale[item.row] * matrix.row_scale[item.channel];
  if (matrix.bias != nullptr) value += matrix.bias[item.channel];
  static_cast<__nv_bfloat16*>(
      direct.output)[item.row * matrix.rows + item.channel] =
      __float2bfloat16_rn(value);
}

__global__ __launch_bounds__(kThreads) void hidden_kernel(
    DirectExperts direct) {
  ptx::wait_for_predecessor();
  ptx::let_successor_start();
  const int32_t width = direct.down.columns;
  const Item item = item_of_warp(width);
  if (item.row >= int64_t{direct.num_tokens} * direct.top_k) return;
  const int32_t expert = direct.expert_ids[item.row] - direct.expert_begin;
  if (expert < 0 || expert >= direct.num_experts) return;
  const glm_matrix& matrix = direct.gate_up;
  const auto* weights =
      static_cast<const uint8_t*>(matrix.data) + expert * direct.gate_up_stride;
  const auto* token = static_cast<const uint8_t*>(direct.tokens) +
                      item.row / direct.top_k * matrix.columns * 2;
  const int32_t packed = packed_row(matrix.role, matrix.rows, item.channel);
  const float gate = dot<GLM_DTYPE_F32, GLM_DTYPE_BF16>(weights, matrix.columns,
                                                        packed, token);
  const float up = dot<GLM_DTYPE_F32, GLM_DTYPE_BF16>(
      weights, matrix.columns, packed + kPairRows, token);
  if (is_first_lane())
    direct.hidden[item.row * width + item.channel] =
        gate / (1.0f + expf(-gate)) * up;
}

__global__ __launch_bounds__(kThreads) void down_kernel(DirectExperts direct) {
  ptx::wait_for_predecessor();
  ptx::let_successor_start();
  const glm_matrix& matrix = direct.down;
  const Item item = item_of_warp(matrix.rows);
  if (item.row >= direct.num_tokens) return;
  const int64_t at = item.row * matrix.rows + item.channel;
  float sum = direct.initial == nullptr
                  ? 0.0f
                  : __bfloat162float(
                        static_cast<const __nv_bfloat16*>(direct.initial)[at]);
  for (int32_t j = 0; j < direct.top_k; ++j) {
    const int64_t choice = item.row * direct.top_k + j;
    const int32_t expert = direct.expert_ids[choice] - direct.expert_begin;
    if (expert < 0 || expert >= direct.num_experts) continue;
    sum += direct.weights[choice] *
           dot<GLM_DTYPE_F32, GLM_DTYPE_F32>(
               static_cast<const uint8_t*>(matrix.data) +
                   expert * direct.down_stride,
               matrix.columns, item.channel,
               reinterpret_cast<const uint8_t*>(direct.hidden +
                                                choice * matrix.columns));
  }
  if (is_first_lane())
    static_cast<__nv_bfloat16*>(direct.output)[at] = __float2bfloat16_rn(sum);
}

LaunchShape one_warp_each(int64_t items) {
  return {dim3(static_cast<uint32_t>(ceil_divide(items, kWarps))),
          dim3(kThreads)};
}

}

void direct_linear(const Context& context, const DirectLinear& direct) {
  const char* where = "prefill linear: direct";
  const LaunchShape shape =
      one_warp_each(int64_t{direct.num_tokens} * direct.matrix.rows);
  if (direct.matrix.dtype == GLM_DTYPE_F8_E4M3)
    launch(where, context.stream, shape,
           linear_kernel<GLM_DTYPE_F8_E4M3, GLM_DTYPE_F8_E4M3>, direct);
  else
    launch(where, context.stream, shape,
           linear_kernel<GLM_DTYPE_BF16, GLM_DTYPE_BF16>, direct);
}

void direct_experts(const Context& context, const DirectExperts& direct) {
  const int64_t choices = int64_t{direct.num_tokens} * direct.top_k;
  launch("prefill experts: direct gate and up", context.stream,
         one_warp_each(choices * direct.down.columns), hidden_kernel, direct);
  launch("prefill experts: direct down", context.stream,
         one_warp_each(int64_t{direct.num_tokens} * direct.down.rows),
         down_kernel, direct);
}

}
