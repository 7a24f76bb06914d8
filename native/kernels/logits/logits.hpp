#ifndef GLM_KERNELS_LOGITS_LOGITS_HPP
#define GLM_KERNELS_LOGITS_LOGITS_HPP

#include <cstdint>

#include "glm/backend.h"
#include "native/kernels/context.hpp"

namespace glm::kernels {

void logits(const Context& context, const glm_logits_args& args);
}

#endif
