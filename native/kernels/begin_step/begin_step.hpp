#pragma once

#include "native/kernels/context.hpp"

namespace glm::kernels {

void begin_step(const Context& context, const glm_begin_step_args& args);

}
