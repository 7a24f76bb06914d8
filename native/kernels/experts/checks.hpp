#ifndef GLM_KERNELS_EXPERTS_CHECKS_HPP
#define GLM_KERNELS_EXPERTS_CHECKS_HPP

#include "glm/backend.h"

namespace glm::kernels::mixture {

inline constexpr char kExperts[] = "experts";

void expect_experts(const glm_experts_args& args);
void expect_memory(const glm_experts_args& args);

}

#endif
