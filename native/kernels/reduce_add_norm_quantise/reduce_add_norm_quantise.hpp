#ifndef GLM_KERNELS_REDUCE_ADD_NORM_QUANTISE_HPP
#define GLM_KERNELS_REDUCE_ADD_NORM_QUANTISE_HPP

#include <cstdint>

#include "glm/backend.h"
#include "native/kernels/context.hpp"

namespace glm::kernels {

void reduce_add_norm_quantise(const Context& context,
                              const glm_reduce_add_norm_quantise_args& args);

}

#endif
