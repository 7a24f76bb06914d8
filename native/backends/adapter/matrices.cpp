#include <cstring>
#include <string>
#include <vector>

#include "arrays.hpp"
#include "device.hpp"
#include "host_view.hpp"
#include "operations.hpp"

namespace glm::adapter {
namespace {

float float_at(const void* source, int32_t dtype, int64_t index) {
  float value = 0;
  if (dtype == GLM_DTYPE_F32) {
    std::memcpy(&value, static_cast<const char*>(source) + 4 * index, 4);
    return value;
  }
  uint16_t half = 0;
  std::memcpy(&half, static_cast<const char*>(source) + 2 * index, 2);
  const uint32_t bits = static_cast<uint32_t>(half) << 16;
  std::memcpy(&value, &bits, 4);
  return value;
}

void widen(const char* where, const char* what, const void* source,
           int32_t dtype, int64_t count, float* destination) {
  if (dtype != GLM_DTYPE_F32 && dtype != GLM_DTYPE_BF16)
    reject(where, std::string(what) + " dtype", "F32 (0) or BF16 (1)",
           std::to_string(dtype));
  if (count == 0) return;
  expect_pointer(where, what, source);
  expect_pointer(where, what, destination);
  std::vector<float> values(static_cast<size_t>(count));
  for (int64_t i = 0; i < count; ++i)
    values[static_cast<size_t>(i)] = float_at(source, dtype, i);
  platform::copy(where, destination, values.data(),
                 count * int64_t{sizeof(float)});
}

template <typename Element>
const Element* row_at(const glm_place_rows_args& args, int64_t row) {
  return static_cast<const Element*>(args.source) +
         (row - args.row_begin) * args.source_row_stride;
}

template <typename Element>
void place_in_rows(const char* where, const glm_place_rows_args& args) {
  const int64_t columns = args.matrix->columns;
  Element* destination =
      static_cast<Element*>(args.matrix->data) + args.row_begin * columns;
  for (int64_t i = 0; i < args.num_rows; ++i)
    platform::copy(where, destination + i * columns,
                   row_at<Element>(args, args.row_begin + i),
                   columns * int64_t{sizeof(Element)});
}

template <typename Element>
void place_in_panels(const char* where, const glm_place_rows_args& args) {
  const glm_matrix& matrix = *args.matrix;
  const int64_t columns = matrix.columns;
  const int64_t end = args.row_begin + args.num_rows;
  const int64_t first = args.row_begin / kPanelColumns * kPanelColumns;
  const int64_t last = num_panels(end) * kPanelColumns;
  HostView<Element> panels(where,
                           static_cast<Element*>(matrix.data) + first * columns,
                           (last - first) * columns);
  const int64_t filled = end == matrix.rows ? last : end;
  for (int64_t row = args.row_begin; row < filled; ++row) {
    const Element* source = row < end ? row_at<Element>(args, row) : nullptr;
    Element* destination =
        panels.data() +
        (row - first) / kPanelColumns * kPanelColumns * columns +
        row % kPanelColumns;
    for (int64_t k = 0; k < columns; ++k)
      destination[k * kPanelColumns] =
          source == nullptr ? Element{} : source[k];
  }
  panels.write();
}

template <typename Element>
void place_elements(const char* where, const glm_place_rows_args& args) {
  if (args.matrix->role == GLM_MATRIX_TABLE)
    place_in_rows<Element>(where, args);
  else
    place_in_panels<Element>(where, args);
}

void place_scales(const glm_place_rows_args& args, const char* where) {
  const glm_matrix& matrix = *args.matrix;
  if (matrix.dtype == GLM_DTYPE_F8_E4M3)
    expect_pointer(where, "scale_source for an FP8 matrix", args.scale_source);
  if (args.scale_source != nullptr && matrix.row_scale == nullptr)
    reject(where, "row_scale for a matrix with scales", "a pointer", "null");
  if (args.scale_source != nullptr)
    widen(where, "scale_source", args.scale_source, args.scale_dtype,
          args.num_rows, matrix.row_scale + args.row_begin);
  if (args.bias_source != nullptr && matrix.bias == nullptr)
    reject(where, "bias for a matrix with biases", "a pointer", "null");
  if (args.bias_source != nullptr)
    widen(where, "bias_source", args.bias_source, args.bias_dtype,
          args.num_rows, matrix.bias + args.row_begin);
}

}

int64_t element_bytes(const char* where, int32_t dtype) {
  switch (dtype) {
    case GLM_DTYPE_F32:
      return 4;
    case GLM_DTYPE_BF16:
      return 2;
    case GLM_DTYPE_F8_E4M3:
      return 1;
    default:
      reject(where, "dtype", "F32 (0), BF16 (1) or F8_E4M3 (2)",
             std::to_string(dtype));
  }
}

int64_t num_panels(int64_t rows) {
  return (rows + kPanelColumns - 1) / kPanelColumns;
}

int64_t matrix_bytes(const glm_matrix& matrix) {
  const char* where = "matrix_bytes";
  expect_range(where, "rows", 0, INT32_MAX, matrix.rows);
  expect_range(where, "columns", 0, INT32_MAX, matrix.columns);
  expect_range(where, "role", GLM_MATRIX_LINEAR, GLM_MATRIX_TABLE, matrix.role);
  const bool table = matrix.role == GLM_MATRIX_TABLE;
  const int64_t rows =
      table ? matrix.rows : num_panels(matrix.rows) * kPanelColumns;
  return rows * matrix.columns * element_bytes(where, matrix.dtype);
}

void expect_plain(const char* where, const char* what,
                  const glm_matrix& matrix) {
  if (matrix.dtype == GLM_DTYPE_F32 || matrix.dtype == GLM_DTYPE_BF16) return;
  throw Failure(GLM_NOT_SUPPORTED,
                std::string(where) + ": expected " + what +
                    " with dtype F32 (0) or BF16 (1), got dtype " +
                    std::to_string(matrix.dtype));
}

void expect_matrix(const char* where, const char* what,
                   const glm_matrix* matrix, int32_t role) {
  expect_pointer(where, what, matrix);
  expect_range(where, "matrix rows", 1, INT32_MAX, matrix->rows);
  expect_range(where, "matrix columns", 1, INT32_MAX, matrix->columns);
  expect_pointer(where, "matrix data", matrix->data);
  const bool table = matrix->role == GLM_MATRIX_TABLE;
  if (table != (role == GLM_MATRIX_TABLE))
    expect_equal(where, "matrix role", role, matrix->role);
  if (element_bytes(where, matrix->dtype) == 1)
    expect_pointer(where, "row_scale for an FP8 matrix", matrix->row_scale);
}

void place_rows(glm_device&, const glm_place_rows_args& args) {
  const char* where = "place_rows";
  expect_pointer(where, "matrix", args.matrix);
  const glm_matrix& matrix = *args.matrix;
  expect_matrix(where, "matrix", &matrix, matrix.role);
  expect_range(where, "num_rows", 0, matrix.rows, args.num_rows);
  expect_range(where, "row_begin", 0, matrix.rows - args.num_rows,
               args.row_begin);
  if (args.num_rows == 0) return;
  expect_pointer(where, "source", args.source);
  expect_range(where, "source_row_stride", matrix.columns, INT64_MAX,
               args.source_row_stride);
  place_scales(args, where);
  switch (element_bytes(where, matrix.dtype)) {
    case 1:
      return place_elements<uint8_t>(where, args);
    case 2:
      return place_elements<uint16_t>(where, args);
    default:
      return place_elements<uint32_t>(where, args);
  }
}

void place_vector(glm_device&, const glm_place_vector_args& args) {
  expect_range("place_vector", "count", 0, INT32_MAX, args.count);
  widen("place_vector", "source", args.source, args.source_dtype, args.count,
        args.destination);
}

void rope_table(glm_device& device, const glm_rope_table_args& args) {
  const char* where = "rope_table";
  expect_range(where, "rotary_dim", 0, INT32_MAX, args.rotary_dim);
  expect_equal(where, "rotary_dim modulo 2", 0, args.rotary_dim % 2);
  expect_range(where, "num_positions", 0, INT32_MAX, args.num_positions);
  const int64_t count =
      static_cast<int64_t>(args.num_positions) * (args.rotary_dim / 2);
  if (count == 0) return;
  expect_pointer(where, "cosine", args.cosine);
  expect_pointer(where, "sine", args.sine);
  Array<float, 2> cosine(device.context), sine(device.context);
  check_kernel(device.context, where,
               futhark_entry_rope_tables(device.context, cosine.slot(),
                                         sine.slot(), args.theta,
                                         args.rotary_dim, args.num_positions));
  cosine.copy_to(where, args.cosine, count);
  sine.copy_to(where, args.sine, count);
}

}
