#include "native/kernels/blackwell/grouped_product.hpp"

namespace glm::kernels::blackwell {

void product_fp8_bf16(const Context& context, const Product& product,
                      const Groups& groups) {
  launch_grouped<cutlass::float_e4m3_t, cutlass::bfloat16_t>(
      "blackwell: FP8 product, BF16 output", context, product, groups);
}

void product_fp8_f32(const Context& context, const Product& product,
                     const Groups& groups) {
  launch_grouped<cutlass::float_e4m3_t, float>(
      "blackwell: FP8 product, F32 output", context, product, groups);
}

void product_bf16_bf16(const Context& context, const Product& product,
                       const Groups& groups) {
  launch_grouped<cutlass::bfloat16_t, cutlass::bfloat16_t>(
      "blackwell: BF16 product, BF16 output", context, product, groups);
}

void product_bf16_f32(const Context& context, const Product& product,
                      const Groups& groups) {
  launch_grouped<cutlass::bfloat16_t, float>(
      "blackwell: BF16 product, F32 output", context, product, groups);
}

}
