#ifndef GLM_KERNELS_QUANTISE_HPP
#define GLM_KERNELS_QUANTISE_HPP

#include <cstdint>

#include "glm/backend.h"
#include "native/kernels/context.hpp"

namespace glm::kernels {

void quantise(const Context& context, const glm_quantise_args& args);

}

#endif
