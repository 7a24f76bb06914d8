#pragma once

#include "native/kernels/context.hpp"

namespace glm::kernels {

void embed_norm_concat(const Context& context,
                       const glm_embed_norm_concat_args& args);

}
