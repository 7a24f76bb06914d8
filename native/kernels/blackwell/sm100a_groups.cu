#include "native/base/cuda.hpp"
#include "native/kernels/blackwell/product.hpp"
#include "native/ptx/dependent_launch.hpp"

namespace glm::kernels::blackwell {

constexpr int32_t kGroupThreads = 256;

__global__ __launch_bounds__(kGroupThreads) void list_groups_kernel(
    Product product, Groups groups) {
  ptx::wait_for_predecessor();
  const auto i = static_cast<int32_t>(blockIdx.x * kGroupThreads + threadIdx.x);
  if (i >= product.num_groups) return;
  const bool sorted = product.expert_begin != nullptr;
  const int64_t begin = sorted ? product.expert_begin[i] : 0;
  const int64_t end = sorted ? product.expert_begin[i + 1] : product.num_tokens;
  const int64_t element = dtype_bytes(product.dtype);
  groups.shape[i] = {product.rows, static_cast<int32_t>(end - begin),
                     product.columns};
  groups.weights[i] = product.weights + i * product.expert_stride;
  groups.weight_pitch[i] = product.weight_pitch / element;
  groups.tokens[i] = product.tokens + begin * product.token_pitch;
  groups.token_pitch[i] = product.token_pitch / element;
  groups.output[i] =
      static_cast<uint8_t*>(product.output) +
      begin * product.output_pitch * dtype_bytes(product.output_dtype);
  groups.output_pitch[i] = product.output_pitch;
  if (groups.channel_scale != nullptr)
    groups.channel_scale[i] =
        product.channel_scale + i * product.channel_scale_stride;
  if (groups.token_scale != nullptr)
    groups.token_scale[i] = product.token_scale + begin;
  if (groups.bias != nullptr) groups.bias[i] = product.bias;
}

void list_groups(const Context& context, const Product& product,
                 const Groups& groups) {
  LaunchShape shape;
  shape.grid = dim3(
      static_cast<uint32_t>(ceil_divide(product.num_groups, kGroupThreads)));
  shape.block = dim3(kGroupThreads);
  launch("blackwell product: group list", context.stream, shape,
         list_groups_kernel, product, groups);
}

}
