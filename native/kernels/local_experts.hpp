#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "glm/backend.h"
#include "native/base/local_experts.hpp"

namespace glm::kernels {

struct LocalExperts {
  int32_t begin = 0;
  int32_t num_routed = 0;
  int32_t shared_id = -1;
  int32_t shared_index = -1;

  int32_t count() const { return num_routed + (shared_id < 0 ? 0 : 1); }

  __host__ __device__ int32_t index_of(int32_t id) const {
    const int32_t index = id - begin;
    if (static_cast<uint32_t>(index) < static_cast<uint32_t>(num_routed))
      return index;
    return id == shared_id ? shared_index : -1;
  }
  __host__ __device__ bool has(int32_t id) const {
    return static_cast<uint32_t>(id - begin) <
               static_cast<uint32_t>(num_routed) |
           (id == shared_id & shared_index >= 0);
  }
  __host__ __device__ int32_t id_of(int32_t index) const {
    return index == shared_index ? shared_id : begin + index;
  }
  __host__ __device__ bool is_before(int32_t id, int32_t index) const {
    return static_cast<uint32_t>(id - begin) < static_cast<uint32_t>(index);
  }
};

inline LocalExperts local_experts(const glm_experts_args& args) {
  const bool has_shared = has_shared_expert(args);
  return {args.expert_begin, args.num_local_experts,
          has_shared ? args.shared_expert_id : -1,
          has_shared ? args.num_local_experts : -1};
}

}
