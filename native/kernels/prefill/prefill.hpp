#ifndef GLM_KERNELS_PREFILL_PREFILL_HPP
#define GLM_KERNELS_PREFILL_PREFILL_HPP

#include <cstdint>

#include "glm/backend.h"
#include "native/collectives/peer/peer_rows.hpp"
#include "native/kernels/context.hpp"

namespace glm::kernels {

int64_t prefill_linear_scratch_bytes();
void prefill_linear(const Context& context, const glm_linear_args& args,
                    const collectives::PeerRows& peers);

int64_t prefill_experts_scratch_bytes(const glm_workspace_shape& shape);
void prefill_experts(const Context& context, const glm_experts_args& args);

}

#endif
