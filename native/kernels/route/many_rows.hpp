#pragma once

#include <cuda.h>

#include <cstdint>

#include "native/kernels/context.hpp"
#include "native/kernels/route/parameters.hpp"

namespace glm::kernels::routing {

constexpr int32_t kGroupExperts = 64;
constexpr int32_t kGroupThreads = 128;

constexpr int32_t widest_of(int32_t num_groups) {
  return num_groups <= 2 ? 128 : num_groups == 3 ? 64 : 32;
}

struct ManyRows {
  const uint8_t* router;
  float* sums;
  int32_t num_tokens;
  int32_t num_fragments;
  int32_t num_column_tiles;
  int32_t num_groups;
  int32_t num_stages;
  int32_t width;

  __host__ __device__ int32_t num_rows() const {
    return num_fragments * kFragmentExperts;
  }
};

bool has_many_rows(const Context& context, const RouteParameters& parameters);
void route_many_rows(const Context& context, int32_t dtype,
                     const RouteParameters& parameters);

void launch_products(const Context& context, int32_t dtype,
                     const CUtensorMap& tokens, ManyRows router);
void launch_selection(cudaStream_t stream, const RouteParameters& parameters,
                      const float* sums);

}
