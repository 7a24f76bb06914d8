#pragma once

#include "native/kernels/context.hpp"

namespace glm::kernels {

void read_memory(const Context& context, const void* memory, int64_t bytes);

}
