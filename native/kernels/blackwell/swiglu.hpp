#pragma once

#include <cstdint>

#include "native/kernels/context.hpp"

namespace glm::kernels::blackwell {

struct GatedRows {
  int32_t dtype = 0;
  int32_t width = 0;
  const int32_t* expert_begin = nullptr;
  int32_t num_experts = 1;
  const float* gate_up = nullptr;
  int64_t gate_up_pitch = 0;
  void* hidden = nullptr;
  int64_t hidden_pitch = 0;
  float* row_scale = nullptr;
};

void gate_rows(const Context& context, const GatedRows& rows);

}
