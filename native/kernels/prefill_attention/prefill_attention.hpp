#pragma once

#include <cstdint>

#include "glm/backend.h"
#include "native/kernels/context.hpp"

namespace glm::kernels {

void prefill_attention(const Context& context, const glm_attention_args& args);

}
