#pragma once

#include <cstdint>

#include "glm/backend.h"
#include "native/kernels/context.hpp"

namespace glm::kernels {

void reduce_add_norm_quantise(const Context& context,
                              const glm_reduce_add_norm_quantise_args& args);

}
