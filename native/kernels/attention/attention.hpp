#pragma once

#include "native/kernels/context.hpp"

namespace glm::kernels {

void attention(const Context& context, const glm_attention_args& args);

}
