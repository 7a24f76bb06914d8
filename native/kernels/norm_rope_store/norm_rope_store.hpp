#ifndef GLM_KERNELS_NORM_ROPE_STORE_HPP
#define GLM_KERNELS_NORM_ROPE_STORE_HPP

#include "native/kernels/context.hpp"

namespace glm::kernels {

void expect_norm_rope_store_shapes(const glm_norm_rope_store_args& args);
void norm_rope_store(const Context& context,
                     const glm_norm_rope_store_args& args);

int64_t norm_rope_store_scratch_bytes(const glm_workspace_shape& shape);

}

#endif
