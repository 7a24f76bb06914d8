#pragma once

#include <cuda.h>

#include <cstdint>

namespace glm::kernels {

struct RowBoxes {
  const void* data = nullptr;
  CUtensorMapDataType element = CU_TENSOR_MAP_DATA_TYPE_UINT8;
  int64_t columns = 0;
  int64_t num_rows = 0;
  int64_t stride_bytes = 0;
  int32_t box_columns = 0;
  int32_t box_rows = 0;
  CUtensorMapL2promotion promotion = CU_TENSOR_MAP_L2_PROMOTION_NONE;
};

CUtensorMap tensor_map(const char* where, const RowBoxes& boxes);

}
