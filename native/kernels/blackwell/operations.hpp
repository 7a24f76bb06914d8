#pragma once

#include <cstdint>

#include "glm/backend.h"
#include "native/kernels/context.hpp"

namespace glm::kernels::blackwell {

void linear(const Context& context, const glm_linear_args& args);
void logits(const Context& context, const glm_logits_args& args);
void experts(const Context& context, const glm_experts_args& args);
const uint8_t* packed_router(const Context& context, const glm_matrix& router);

}
