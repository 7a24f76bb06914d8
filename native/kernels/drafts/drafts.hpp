#pragma once

#include "native/kernels/context.hpp"

namespace glm::kernels {

void begin_drafts(const Context& context, const glm_begin_drafts_args& args);
void keep_drafts(const Context& context, const glm_keep_drafts_args& args);

}
