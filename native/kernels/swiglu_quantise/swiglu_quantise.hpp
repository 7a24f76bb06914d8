#pragma once

#include <cstdint>

#include "glm/backend.h"
#include "native/kernels/context.hpp"

namespace glm::kernels {

void swiglu_quantise(const Context& context,
                     const glm_swiglu_quantise_args& args);

}
