#include "native/kernels/prefill_attention/bf16_producer.hpp"
#include "native/kernels/prefill_attention/kernel.hpp"
#include "native/kernels/prefill_attention/launch.hpp"

namespace glm::kernels::prefill_attention_detail {

void launch_bf16(cudaStream_t stream, int32_t num_blocks,
                 const Parameters& parameters) {
  launch_head<Tiling, Bf16Producer>(stream, num_blocks, parameters);
}

}
