#include "native/kernels/logits/logits_products.hpp"
#include "native/kernels/stream/product_launch.hpp"

namespace glm::kernels {

void bf16_logits(const Context& context, const stream::ProductPlans& plans,
                 const stream::ProductArgs& args) {
  stream::launch_chunk<GLM_DTYPE_BF16, float>("logits", context, plans, args);
}

}
