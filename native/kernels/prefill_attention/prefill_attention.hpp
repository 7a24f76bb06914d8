#ifndef GLM_KERNELS_PREFILL_ATTENTION_HPP
#define GLM_KERNELS_PREFILL_ATTENTION_HPP

#include <cstdint>

#include "glm/backend.h"
#include "native/kernels/context.hpp"

namespace glm::kernels {

void prefill_attention(const Context& context, const glm_attention_args& args);

}

#endif
