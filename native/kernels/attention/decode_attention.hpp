#pragma once

#include "native/kernels/context.hpp"

namespace glm::kernels {

struct DecodeRows {
  int32_t first;
  int32_t count;
  const int32_t* context_length;
  const int32_t* table_row;
  bool waits_first;
};

void decode_attention(const Context& context, const glm_attention_args& args,
                      const DecodeRows& rows);

}
