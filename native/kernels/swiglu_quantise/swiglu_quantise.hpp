#ifndef GLM_KERNELS_SWIGLU_QUANTISE_HPP
#define GLM_KERNELS_SWIGLU_QUANTISE_HPP

#include <cstdint>

#include "glm/backend.h"
#include "native/kernels/context.hpp"

namespace glm::kernels {

void swiglu_quantise(const Context& context,
                     const glm_swiglu_quantise_args& args);

}

#endif
