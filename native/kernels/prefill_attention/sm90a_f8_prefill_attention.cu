#include "native/kernels/prefill_attention/f8_producer.hpp"
#include "native/kernels/prefill_attention/kernel.hpp"
#include "native/kernels/prefill_attention/launch.hpp"

namespace glm::kernels::prefill_attention_detail {

void launch_f8(cudaStream_t stream, int32_t num_blocks,
               const Parameters& parameters) {
  launch_head<F8Tiling, F8Producer>(stream, num_blocks, parameters);
}

}
