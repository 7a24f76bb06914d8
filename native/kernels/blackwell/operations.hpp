#ifndef GLM_KERNELS_BLACKWELL_OPERATIONS_HPP
#define GLM_KERNELS_BLACKWELL_OPERATIONS_HPP

#include <cstdint>

#include "glm/backend.h"
#include "native/kernels/context.hpp"

namespace glm::kernels::blackwell {

void linear(const Context& context, const glm_linear_args& args);
void logits(const Context& context, const glm_logits_args& args);
void experts(const Context& context, const glm_experts_args& args);
const uint8_t* packed_router(const Context& context, const glm_matrix& router);

int64_t linear_scratch_bytes();
int64_t experts_scratch_bytes(const glm_workspace_shape& shape);
int64_t router_scratch_bytes(int32_t most_experts, int32_t hidden_size);

}

#endif
