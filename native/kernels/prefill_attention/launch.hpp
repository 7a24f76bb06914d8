#pragma once

#include <cuda_runtime.h>

#include "native/kernels/prefill_attention/tiling.hpp"

namespace glm::kernels::prefill_attention_detail {

void launch_bf16(cudaStream_t stream, int32_t num_blocks,
                 const Parameters& parameters);

void launch_f8(cudaStream_t stream, int32_t num_blocks,
               const Parameters& parameters);

}
