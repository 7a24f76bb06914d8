#ifndef GLM_KERNELS_COUNT_TOKENS_HPP
#define GLM_KERNELS_COUNT_TOKENS_HPP

#include <cstdint>

#include "glm/backend.h"
#include "native/kernels/context.hpp"

namespace glm::kernels {

void count_tokens(const Context& context, const glm_count_tokens_args& args);

void count_sampled_tokens(const Context& context,
                          const glm_count_sampled_tokens_args& args);

}

#endif
