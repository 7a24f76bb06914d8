#include "native/kernels/prefill/sm90a_product.hpp"

namespace glm::kernels::prefill {

void product_bf16(const Context& context, const TokenMaps& tokens,
                  const Product& product) {
  launch_product<Bf16, Output::kChannels>("prefill: BF16 product", context,
                                          tokens, product);
}

}
