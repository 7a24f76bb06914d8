#pragma once

#include <cstdint>

#include "glm/backend.h"
#include "native/kernels/context.hpp"

namespace glm::kernels {

struct GatherArgs {
  const uint8_t* input;
  const int32_t* row_index;
  int32_t row_begin;
  int32_t num_rows;
  int32_t row_bytes;
  uint8_t* output;
  int32_t output_row_bytes;
};

GatherArgs gather_args(const glm_logits_args& args, int32_t row_begin,
                       int32_t num_rows, int64_t output_row_bytes,
                       void* output);

void gather_rows(const Context& context, const GatherArgs& args);

}
