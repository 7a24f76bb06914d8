#pragma once

#include <cstdint>

#include "glm/backend.h"
#include "native/kernels/context.hpp"

namespace glm::kernels {

void route(const Context& context, const glm_route_args& args);

}
