#pragma once

#include "native/kernels/context.hpp"
#include "native/kernels/stream/product_args.hpp"
#include "native/kernels/stream/product_plan.hpp"

namespace glm::kernels {

void streamed_fp8_linear(const Context& context,
                         const stream::ProductPlans& plans,
                         const stream::ProductArgs& args);
void streamed_bf16_linear(const Context& context,
                          const stream::ProductPlans& plans,
                          const stream::ProductArgs& args);

}
