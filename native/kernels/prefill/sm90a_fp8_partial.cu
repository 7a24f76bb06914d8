#include "native/kernels/prefill/sm90a_product.hpp"

namespace glm::kernels::prefill {

void product_fp8_partial(const Context& context, const TokenMaps& tokens,
                         const Product& product) {
  launch_product<Fp8, Output::kPartial>("prefill: FP8 down product", context,
                                        tokens, product);
}

}
