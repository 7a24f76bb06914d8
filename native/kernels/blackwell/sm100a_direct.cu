#include <cuda_bf16.h>
#include <cuda_fp8.h>

#include "native/base/cuda.hpp"
#include "native/kernels/blackwell/product.hpp"
#include "native/ptx/dependent_launch.hpp"

namespace glm::kernels::blackwell {

constexpr int32_t kDirectWarps = 8;
constexpr int32_t kDirectThreads = kDirectWarps * 32;

template <typename Element, typename Output>
__global__ __launch_bounds__(kDirectThreads) void direct_kernel(
    Product product) {
  ptx::wait_for_predecessor();
  ptx::let_successor_start();
  const int64_t item = int64_t{blockIdx.x} * kDirectWarps +
                       static_cast<int32_t>(threadIdx.x) / 32;
  const int64_t token = item / product.rows;
  const int64_t channel = item % product.rows;
  if (token >= product.num_tokens) return;
  const auto* weights = reinterpret_cast<const Element*>(
      product.weights + channel * product.weight_pitch);
  const auto* tokens = reinterpret_cast<const Element*>(
      product.tokens + token * product.token_pitch);
  float sum = 0.0f;
  for (int32_t k = static_cast<int32_t>(threadIdx.x) % 32; k < product.columns;
       k += 32)
    sum += static_cast<float>(weights[k]) * static_cast<float>(tokens[k]);
  for (int32_t step = 16; step > 0; step /= 2)
    sum += __shfl_xor_sync(~0u, sum, step);
  if (threadIdx.x % 32 != 0) return;
  if (product.token_scale != nullptr)
    sum *= product.token_scale[token] * product.channel_scale[channel];
  if (product.bias != nullptr) sum += product.bias[channel];
  static_cast<Output*>(product.output)[token * product.output_pitch + channel] =
      static_cast<Output>(sum);
}

template <typename Element, typename Output>
void launch_direct(const Context& context, const Product& product) {
  LaunchShape shape;
  shape.grid = dim3(static_cast<uint32_t>(
      ceil_divide(int64_t{product.num_tokens} * product.rows, kDirectWarps)));
  shape.block = dim3(kDirectThreads);
  launch("blackwell product: direct", context.stream, shape,
         direct_kernel<Element, Output>, product);
}

void multiply_directly(const Context& context, const Product& product) {
  if (product.dtype == GLM_DTYPE_F8_E4M3)
    launch_direct<__nv_fp8_e4m3, __nv_bfloat16>(context, product);
  else if (product.output_dtype == GLM_DTYPE_F32)
    launch_direct<__nv_bfloat16, float>(context, product);
  else
    launch_direct<__nv_bfloat16, __nv_bfloat16>(context, product);
}

}
