#pragma once

#include "native/kernels/context.hpp"

namespace glm::kernels {

void norm_rope_store(const Context& context,
                     const glm_norm_rope_store_args& args);

}
