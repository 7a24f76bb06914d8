#pragma once

#include "native/kernels/context.hpp"

namespace glm::kernels {

void accept(const Context& context, const glm_accept_args& args);

}
