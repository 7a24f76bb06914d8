#include "native/kernels/logits/logits_products.hpp"
#include "native/kernels/stream/plain_product.hpp"

namespace glm::kernels {

void f32_logits(const Context& context, const stream::ProductArgs& args) {
  stream::launch_plain_product<float>("logits", context, args);
}

}
