#pragma once

#include <cstdint>

#include "glm/backend.h"
#include "native/kernels/context.hpp"

namespace glm::kernels {

void sample(const Context& context, const glm_sample_args& args);

}
