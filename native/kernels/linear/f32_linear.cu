#include <cuda_bf16.h>

#include "native/kernels/linear/streamed_products.hpp"
#include "native/kernels/stream/plain_product.hpp"

namespace glm::kernels {

void streamed_f32_linear(const Context& context,
                         const stream::ProductArgs& args) {
  stream::launch_plain_product<__nv_bfloat16>("linear", context, args);
}

}
