#ifndef GLM_KERNELS_ROUTE_ROUTE_HPP
#define GLM_KERNELS_ROUTE_ROUTE_HPP

#include <cstdint>

#include "glm/backend.h"
#include "native/kernels/context.hpp"

namespace glm::kernels {

int64_t route_scratch_bytes(const glm_workspace_shape& shape);
void expect_route_shapes(const glm_route_args& args);
void route(const Context& context, const glm_route_args& args);

}

#endif
