#ifndef GLM_KERNELS_SELECT_TOKENS_HPP
#define GLM_KERNELS_SELECT_TOKENS_HPP

#include "native/kernels/context.hpp"

namespace glm::kernels {

void select_tokens(const Context& context, const glm_select_tokens_args& args);

}

#endif
