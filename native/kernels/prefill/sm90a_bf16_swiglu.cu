#include "native/kernels/prefill/sm90a_product.hpp"

namespace glm::kernels::prefill {

void product_bf16_swiglu(const Context& context, const TokenMaps& tokens,
                         const Product& product) {
  launch_product<Bf16, Output::kHiddenBf16>("prefill: BF16 gate and up product",
                                            context, tokens, product);
}

}
