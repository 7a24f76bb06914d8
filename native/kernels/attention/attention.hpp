#ifndef GLM_KERNELS_ATTENTION_HPP
#define GLM_KERNELS_ATTENTION_HPP

#include "native/kernels/context.hpp"

namespace glm::kernels {

void attention(const Context& context, const glm_attention_args& args);

}

#endif
