#ifndef GLM_KERNELS_EMBED_HPP
#define GLM_KERNELS_EMBED_HPP

#include <cstdint>

#include "glm/backend.h"
#include "native/kernels/context.hpp"

namespace glm::kernels {

void embed(const Context& context, const glm_embed_args& args);

}

#endif
