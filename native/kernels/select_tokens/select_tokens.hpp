#pragma once

#include "native/kernels/context.hpp"

namespace glm::kernels {

void select_tokens(const Context& context, const glm_select_tokens_args& args);

}
