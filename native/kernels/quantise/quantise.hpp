#pragma once

#include <cstdint>

#include "glm/backend.h"
#include "native/kernels/context.hpp"

namespace glm::kernels {

void quantise(const Context& context, const glm_quantise_args& args);

}
