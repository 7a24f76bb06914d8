#pragma once

#include <cstdint>

#include "glm/backend.h"
#include "native/base/host_device.hpp"

namespace glm::kernels {

constexpr int32_t kTileRows = 128;
constexpr int32_t kTileRowBytes = 128;
constexpr int32_t kTileBytes = kTileRows * kTileRowBytes;
constexpr int32_t kChunkBytes = 16;
constexpr int32_t kPairRows = 8;
constexpr int32_t kBlockTokens = 16;
constexpr int32_t kHalfBytes = 128;
constexpr int32_t kMaxGroupHeads = 16;

GLM_HOST_DEVICE constexpr int64_t ceil_divide(int64_t value, int64_t divisor) {
  return (value + divisor - 1) / divisor;
}

GLM_HOST_DEVICE constexpr int64_t round_up(int64_t value, int64_t multiple) {
  return ceil_divide(value, multiple) * multiple;
}

GLM_HOST_DEVICE constexpr int32_t dtype_bytes(int32_t dtype) {
  return dtype == GLM_DTYPE_F32 ? 4 : dtype == GLM_DTYPE_BF16 ? 2 : 1;
}

GLM_HOST_DEVICE constexpr int32_t swizzle(int32_t row, int32_t byte) {
  return row * kTileRowBytes + (byte ^ ((row & 7) * kChunkBytes));
}

GLM_HOST_DEVICE constexpr int32_t packed_row(int32_t role, int32_t rows,
                                             int32_t row) {
  if (role != GLM_MATRIX_GATE_UP) return row;
  int32_t half = rows / 2;
  int32_t index = row < half ? row : row - half;
  return index / kPairRows * (2 * kPairRows) + (row < half ? 0 : kPairRows) +
         index % kPairRows;
}

GLM_HOST_DEVICE constexpr int32_t logical_row(int32_t role, int32_t rows,
                                              int32_t packed) {
  if (role != GLM_MATRIX_GATE_UP) return packed < rows ? packed : -1;
  int32_t index = packed / (2 * kPairRows) * kPairRows + packed % kPairRows;
  if (index >= rows / 2) return -1;
  return packed / kPairRows % 2 == 0 ? index : rows / 2 + index;
}

GLM_HOST_DEVICE constexpr int32_t num_packed_rows(int32_t role, int32_t rows) {
  return role == GLM_MATRIX_GATE_UP
             ? static_cast<int32_t>(round_up(rows / 2, kPairRows)) * 2
             : rows;
}

GLM_HOST_DEVICE constexpr int32_t num_row_tiles(int32_t role, int32_t rows) {
  return static_cast<int32_t>(
      ceil_divide(num_packed_rows(role, rows), kTileRows));
}

GLM_HOST_DEVICE constexpr int32_t num_column_tiles(int32_t dtype,
                                                   int32_t columns) {
  return static_cast<int32_t>(
      ceil_divide(int64_t{columns} * dtype_bytes(dtype), kTileRowBytes));
}

GLM_HOST_DEVICE constexpr int64_t packed_bytes(int32_t dtype, int32_t role,
                                               int32_t rows, int32_t columns) {
  return int64_t{num_row_tiles(role, rows)} * num_column_tiles(dtype, columns) *
         kTileBytes;
}

GLM_HOST_DEVICE constexpr int64_t packed_offset(int32_t dtype, int32_t columns,
                                                int32_t packed,
                                                int32_t column) {
  int64_t byte = int64_t{column} * dtype_bytes(dtype);
  int64_t tile =
      int64_t{packed / kTileRows} * num_column_tiles(dtype, columns) +
      byte / kTileRowBytes;
  return tile * kTileBytes +
         swizzle(packed % kTileRows,
                 static_cast<int32_t>(byte % kTileRowBytes));
}

GLM_HOST_DEVICE constexpr int32_t num_halves(int32_t dtype, int32_t head_dim) {
  return static_cast<int32_t>(
      ceil_divide(int64_t{head_dim} * dtype_bytes(dtype), kHalfBytes));
}

GLM_HOST_DEVICE constexpr int64_t block_bytes(int32_t dtype, int32_t head_dim) {
  return int64_t{2} * num_halves(dtype, head_dim) * kBlockTokens * kHalfBytes;
}

GLM_HOST_DEVICE constexpr int64_t head_page_bytes(int32_t dtype,
                                                  int32_t head_dim,
                                                  int32_t page_size) {
  return page_size / kBlockTokens * block_bytes(dtype, head_dim);
}

GLM_HOST_DEVICE inline int64_t page_offset(const glm_kv_cache& cache,
                                           int32_t layer, int32_t head,
                                           int32_t page) {
  int64_t index =
      (int64_t{layer} * cache.num_pages + page) * cache.num_kv_heads + head;
  return index * head_page_bytes(cache.dtype, cache.head_dim, cache.page_size);
}

GLM_HOST_DEVICE constexpr int64_t block_element_offset(int32_t dtype,
                                                       int32_t head_dim,
                                                       bool value,
                                                       int32_t token,
                                                       int32_t dimension) {
  int32_t byte = dimension * dtype_bytes(dtype);
  int32_t half = (value ? num_halves(dtype, head_dim) : 0) + byte / kHalfBytes;
  return int64_t{half} * kBlockTokens * kHalfBytes +
         swizzle(token, byte % kHalfBytes);
}

}
