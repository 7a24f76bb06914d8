#include "native/kernels/prefill/sm90a_product.hpp"

namespace glm::kernels::prefill {

void product_fp8_swiglu(const Context& context, const TokenMaps& tokens,
                        const Product& product) {
  launch_product<Fp8, Output::kHiddenFloat>("prefill: FP8 gate and up product",
                                            context, tokens, product);
}

}
