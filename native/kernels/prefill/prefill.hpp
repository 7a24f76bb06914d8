#pragma once

#include <cstdint>

#include "glm/backend.h"
#include "native/collectives/peer/peer_rows.hpp"
#include "native/kernels/context.hpp"

namespace glm::kernels {

void prefill_linear(const Context& context, const glm_linear_args& args,
                    const collectives::PeerRows& peers);

void prefill_experts(const Context& context, const glm_experts_args& args);

}
