#pragma once

#include <array>
#include <cstdint>

#include "glm/backend.h"
#include "native/backends/cuda/regions.hpp"

namespace glm::cuda {

constexpr int64_t kSlotBytes = 4 << 20;

void kind_info(glm_device_info* info);
void expect_placeable(const glm_matrix& matrix);
void matrix_bytes(const glm_matrix* matrix, int64_t* bytes);
void kv_page_bytes(const glm_kv_cache* cache, int64_t* bytes);
std::array<int64_t, kNumRegions> region_bytes(const glm_workspace_shape* shape);
void workspace_bytes(const glm_workspace_shape* shape, int64_t* bytes);
void check_model(const glm_model_shape& shape);

}
