#ifndef GLM_KERNELS_NORM_ROPE_STORE_HPP
#define GLM_KERNELS_NORM_ROPE_STORE_HPP

#include "native/kernels/context.hpp"

namespace glm::kernels {

void norm_rope_store(const Context& context,
                     const glm_norm_rope_store_args& args);

}

#endif
