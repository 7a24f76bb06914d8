#ifndef GLM_BASE_LOCAL_EXPERTS_HPP
#define GLM_BASE_LOCAL_EXPERTS_HPP

#include <cstdint>

#include "glm/backend.h"

namespace glm {

void expect_local_experts(const char* where, int32_t most,
                          const glm_experts_args& args);

}

#endif
