#include <cstdio>

#include "native/backends/cuda/plan/plan.hpp"
#include "native/base/failure.hpp"
#include "native/kernels/layout.hpp"
#include "native/kernels/shapes/shapes.hpp"

namespace glm::cuda {
namespace {

constexpr int32_t kFewestScatteredRows = 1024;

}

void kind_info(glm_device_info* info) {
  expect_pointer("device_info", "info", info);
  expect_equal("device_info", "struct_size", sizeof(glm_device_info),
               info->struct_size);
  info->activation_dtype = GLM_DTYPE_BF16;
  info->default_kv_dtype = GLM_DTYPE_BF16;
  info->supports_graphs = 1;
  info->page_size_multiple = kernels::kBlockTokens;
  info->is_asynchronous = 1;
  info->merges_shared_expert = 1;
  info->has_one_attention = 0;
  info->fewest_scattered_rows = kFewestScatteredRows;
  info->memory_total_bytes = 0;
  info->memory_free_bytes = 0;
  std::snprintf(info->name, sizeof info->name, "NVIDIA GPU");
}

void expect_placeable(const glm_matrix& matrix) {
  const char* where = "place_rows";
  kernels::expect_matrix_shape(where, matrix);
  expect_range(where, "bytes per row", 1, kSlotBytes,
               int64_t{matrix.columns} * kernels::dtype_bytes(matrix.dtype));
}

void matrix_bytes(const glm_matrix* matrix, int64_t* bytes) {
  const char* where = "matrix_bytes";
  expect_pointer(where, "matrix", matrix);
  expect_pointer(where, "bytes", bytes);
  expect_range(where, "rows", 0, INT32_MAX, matrix->rows);
  expect_range(where, "columns", 0, INT32_MAX, matrix->columns);
  expect_range(where, "role", GLM_MATRIX_LINEAR, GLM_MATRIX_TABLE,
               matrix->role);
  expect_range(where, "dtype", GLM_DTYPE_F32, GLM_DTYPE_F8_E4M3, matrix->dtype);
  *bytes = matrix->role == GLM_MATRIX_TABLE
               ? int64_t{matrix->rows} * matrix->columns *
                     kernels::dtype_bytes(matrix->dtype)
               : kernels::packed_bytes(matrix->dtype, matrix->role,
                                       matrix->rows, matrix->columns);
}

void kv_page_bytes(const glm_kv_cache* cache, int64_t* bytes) {
  expect_pointer("kv_page_bytes", "cache", cache);
  expect_pointer("kv_page_bytes", "bytes", bytes);
  *bytes = kernels::page_bytes(*cache);
}

}
