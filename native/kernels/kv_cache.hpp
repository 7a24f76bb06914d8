#pragma once

#include <cstdint>

#include "glm/backend.h"

namespace glm::kernels {

constexpr int32_t kMaxHeadDim = 256;

void expect_cache_shape(const char* where, const glm_kv_cache* cache);
void expect_kv_cache(const char* where, const glm_kv_cache* cache);

bool has_scales(const glm_kv_cache& cache);

const float* scales_of_layer(const float* scales, const glm_kv_cache& cache,
                             int32_t layer);

void expect_layer(const char* where, const glm_kv_cache& cache, int32_t layer);

void expect_group(const char* where, const glm_kv_cache& cache,
                  int32_t num_heads);

}
