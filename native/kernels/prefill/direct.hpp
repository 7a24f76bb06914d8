#ifndef GLM_KERNELS_PREFILL_DIRECT_HPP
#define GLM_KERNELS_PREFILL_DIRECT_HPP

#include <cstdint>

#include "glm/backend.h"
#include "native/kernels/context.hpp"

namespace glm::kernels::prefill {

struct DirectLinear {
  int32_t num_tokens = 0;
  glm_matrix matrix = {};
  const void* tokens = nullptr;
  const float* token_scale = nullptr;
  void* output = nullptr;
};

struct DirectExperts {
  int32_t num_tokens = 0;
  int32_t top_k = 0;
  int32_t expert_begin = 0;
  int32_t num_experts = 0;
  glm_matrix gate_up = {};
  glm_matrix down = {};
  int64_t gate_up_stride = 0;
  int64_t down_stride = 0;
  const void* tokens = nullptr;
  const int32_t* expert_ids = nullptr;
  const float* weights = nullptr;
  float* hidden = nullptr;
  const void* initial = nullptr;
  void* output = nullptr;
};

void direct_linear(const Context& context, const DirectLinear& direct);
void direct_experts(const Context& context, const DirectExperts& direct);

}

#endif
