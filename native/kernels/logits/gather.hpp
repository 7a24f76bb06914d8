#ifndef GLM_KERNELS_LOGITS_GATHER_HPP
#define GLM_KERNELS_LOGITS_GATHER_HPP

#include <cstdint>

#include "native/kernels/context.hpp"

namespace glm::kernels {

struct GatherArgs {
  const uint8_t* input;
  const int32_t* row_index;
  int32_t num_rows;
  int32_t row_bytes;
  uint8_t* output;
  int32_t output_row_bytes;
};

void gather_rows(const Context& context, const GatherArgs& args);

}

#endif
