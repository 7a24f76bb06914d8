#ifndef GLM_KERNELS_LINEAR_DECODE_PRODUCTS_HPP
#define GLM_KERNELS_LINEAR_DECODE_PRODUCTS_HPP

#include "native/kernels/context.hpp"
#include "native/kernels/stream/product_args.hpp"
#include "native/kernels/stream/product_plan.hpp"

namespace glm::kernels {

void decode_fp8_linear(const Context& context,
                       const stream::ProductPlans& plans,
                       const stream::ProductArgs& args);
void decode_bf16_linear(const Context& context,
                        const stream::ProductPlans& plans,
                        const stream::ProductArgs& args);
void decode_f32_linear(const Context& context, const stream::ProductArgs& args);

}

#endif
