#ifndef GLM_KERNELS_PREFILL_ATTENTION_HPP
#define GLM_KERNELS_PREFILL_ATTENTION_HPP

#include <cstdint>

#include "glm/backend.h"
#include "native/kernels/context.hpp"

namespace glm::kernels {

void prefill_attention(const Context& context, const glm_attention_args& args);

int64_t prefill_attention_scratch_bytes(const glm_workspace_shape& shape);

}

#endif
