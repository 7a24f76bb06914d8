#include <cuda_bf16.h>

#include "native/kernels/linear/streamed_products.hpp"
#include "native/kernels/stream/product_launch.hpp"

namespace glm::kernels {

void streamed_fp8_linear(const Context& context,
                         const stream::ProductPlans& plans,
                         const stream::ProductArgs& args) {
  stream::launch_chunk<GLM_DTYPE_F8_E4M3, __nv_bfloat16>("linear", context,
                                                         plans, args);
}

}
