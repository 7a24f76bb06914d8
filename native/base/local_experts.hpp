#pragma once

#include <cstdint>

#include "glm/backend.h"

namespace glm {

struct ExpertStack {
  const glm_matrix* gate_up;
  const glm_matrix* down;
  int64_t gate_up_stride;
  int64_t gate_up_scale_stride;
  int64_t down_stride;
  int64_t down_scale_stride;
  int32_t id_begin;
  int32_t index_begin;
  int32_t num_experts;
};

inline bool has_shared_expert(const glm_experts_args& args) {
  return args.shared_expert_id >= 0;
}

ExpertStack routed_experts(const glm_experts_args& args);
ExpertStack shared_expert(const glm_experts_args& args);

void expect_local_experts(const char* where, int32_t most,
                          const glm_experts_args& args);

void expect_shared_shapes(const char* where, const glm_experts_args& args);

void expect_shared_memory(const char* where, const glm_experts_args& args);

}
