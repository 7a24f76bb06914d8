#pragma once

#include <cstdint>

#include "glm/backend.h"
#include "native/kernels/context.hpp"

namespace glm::kernels {

void count_tokens(const Context& context, const glm_count_tokens_args& args);

}
