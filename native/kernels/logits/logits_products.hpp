#pragma once

#include "native/kernels/context.hpp"
#include "native/kernels/stream/product_args.hpp"
#include "native/kernels/stream/product_plan.hpp"

namespace glm::kernels {

void bf16_logits(const Context& context, const stream::ProductPlans& plans,
                 const stream::ProductArgs& args);

}
