#pragma once

#include "glm/backend.h"

namespace glm::kernels::mixture {

inline constexpr char kExperts[] = "experts";

void expect_experts(const glm_experts_args& args);
void expect_memory(const glm_experts_args& args);

}
