#pragma once

#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <cstdint>

#include "native/kernels/route/shared_plan.hpp"

namespace glm::kernels::routing {

struct RouteParameters {
  const uint8_t* router;
  const __nv_bfloat16* input;
  const float* selection_bias;
  int32_t* expert_ids;
  float* expert_weights;
  int32_t num_tokens;
  int32_t hidden_size;
  int32_t num_experts;
  int32_t num_fragments;
  int32_t num_column_tiles;
  int32_t top_k;
  int32_t num_shared;
  int32_t normalise;
  float scaling_factor;
  int32_t num_stages;
  int32_t num_shares;
};

__host__ __device__ inline int32_t first_tile(int32_t num_column_tiles,
                                              int32_t part) {
  return static_cast<int32_t>(int64_t{num_column_tiles} * part / kParts);
}

void launch_route(cudaStream_t stream, int32_t dtype,
                  const RouteParameters& parameters);

}
