#include "native/kernels/prefill/sm90a_product.hpp"

namespace glm::kernels::prefill {

void product_fp8(const Context& context, const TokenMaps& tokens,
                 const Product& product) {
  launch_product<Fp8, Output::kChannels>("prefill: FP8 product", context,
                                         tokens, product);
}

}
