#ifndef GLM_KERNELS_PREFILL_PREFILL_HPP
#define GLM_KERNELS_PREFILL_PREFILL_HPP

#include <cstdint>

#include "glm/backend.h"
#include "native/kernels/context.hpp"

namespace glm::kernels {

void prefill_linear(const Context& context, const glm_linear_args& args,
                    int32_t row_begin, int32_t num_rows);

int64_t prefill_experts_scratch_bytes(const glm_workspace_shape& shape);
void prefill_experts(const Context& context, const glm_experts_args& args,
                     int32_t row_begin, int32_t num_rows);

}

#endif
