#include "native/kernels/prefill/sm90a_product.hpp"

namespace glm::kernels::prefill {

void product_bf16_partial(const Context& context, const TokenMaps& tokens,
                          const Product& product) {
  launch_product<Bf16, Output::kPartial>("prefill: BF16 down product", context,
                                         tokens, product);
}

}
