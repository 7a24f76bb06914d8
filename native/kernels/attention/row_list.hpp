#pragma once

#include "native/kernels/context.hpp"

namespace glm::kernels {

struct RowList {
  int32_t* context_length;
  int32_t* table_row;
};

void list_prefill_rows(const Context& context, const glm_attention_args& args,
                       const RowList& list);

}
