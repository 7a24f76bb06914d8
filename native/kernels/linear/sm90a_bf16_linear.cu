#include <cuda_bf16.h>

#include "native/kernels/linear/streamed_products.hpp"
#include "native/kernels/stream/product_launch.hpp"

namespace glm::kernels {

void streamed_bf16_linear(const Context& context,
                          const stream::ProductPlans& plans,
                          const stream::ProductArgs& args) {
  stream::launch_chunk<GLM_DTYPE_BF16, __nv_bfloat16>("linear", context, plans,
                                                      args);
}

}
