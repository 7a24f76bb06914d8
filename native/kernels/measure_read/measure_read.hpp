#ifndef GLM_KERNELS_MEASURE_READ_HPP
#define GLM_KERNELS_MEASURE_READ_HPP

#include "native/kernels/context.hpp"

namespace glm::kernels {

void read_memory(const Context& context, const void* memory, int64_t bytes);

}

#endif
