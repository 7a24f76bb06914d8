#ifndef GLM_KERNELS_ATTENTION_HPP
#define GLM_KERNELS_ATTENTION_HPP

#include "native/kernels/context.hpp"

namespace glm::kernels {

void expect_attention_shapes(const glm_attention_args& args);
void attention(const Context& context, const glm_attention_args& args);

int64_t attention_scratch_bytes(const glm_workspace_shape& shape);

}

#endif
