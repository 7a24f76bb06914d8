#include "native/kernels/placement/placement.hpp"

#include <algorithm>
#include <cstring>
#include <string>

#include "native/backends/cuda/lifecycle.hpp"
#include "native/base/failure.hpp"
#include "native/kernels/layout.hpp"

namespace glm::cuda {
namespace {

void expect_floats(const char* where, const char* what, const void* source,
                   int32_t dtype, const void* destination) {
  if (dtype != GLM_DTYPE_F32 && dtype != GLM_DTYPE_BF16)
    reject(where, std::string(what) + " dtype", "F32 (0) or BF16 (1)",
           std::to_string(dtype));
  expect_pointer(where, what, source);
  expect_pointer(where, what, destination);
}

void expect_rows(const char* where, const glm_place_rows_args& args) {
  expect_pointer(where, "matrix", args.matrix);
  const glm_matrix& matrix = *args.matrix;
  kernels::expect_matrix(where, matrix);
  expect_placeable(matrix);
  expect_range(where, "num_rows", 0, matrix.rows, args.num_rows);
  expect_range(where, "row_begin", 0, matrix.rows - args.num_rows,
               args.row_begin);
  if (args.num_rows == 0) return;
  expect_pointer(where, "source", args.source);
  expect_range(where, "source_row_stride", matrix.columns, INT64_MAX,
               args.source_row_stride);
  if (matrix.dtype == GLM_DTYPE_F8_E4M3)
    expect_pointer(where, "scale_source for an FP8 matrix", args.scale_source);
  if (args.scale_source != nullptr)
    expect_floats(where, "scale_source", args.scale_source, args.scale_dtype,
                  matrix.row_scale);
  if (args.bias_source != nullptr)
    expect_floats(where, "bias_source", args.bias_source, args.bias_dtype,
                  matrix.bias);
}

struct SourceFloats {
  const void* source;
  int32_t dtype;
  int32_t count;
  float* destination;

  int64_t bytes() const { return int64_t{count} * kernels::dtype_bytes(dtype); }
};

void place_floats(glm_device& device, const SourceFloats& floats) {
  constexpr int32_t kMost = kSlotBytes / sizeof(float);
  const kernels::Context context = context_of(device, kPlacement);
  const int32_t width = kernels::dtype_bytes(floats.dtype);
  for (int32_t begin = 0; begin < floats.count; begin += kMost) {
    const SourceFloats part{
        static_cast<const char*>(floats.source) + int64_t{begin} * width,
        floats.dtype, std::min(kMost, floats.count - begin),
        floats.destination + begin};
    device.staging->submit([context, part](uint8_t* slot) {
      std::memcpy(slot, part.source, static_cast<size_t>(part.bytes()));
      kernels::widen_floats(context,
                            {slot, part.dtype, part.count, part.destination});
    });
  }
}

struct SourceRows {
  glm_matrix matrix;
  int32_t row_begin;
  int32_t num_rows;
  const char* source;
  int64_t source_pitch;
  int64_t row_bytes;
  int64_t row_pitch;
};

void stage_rows(const kernels::Context& context, const SourceRows& rows,
                uint8_t* slot) {
  if (rows.row_bytes == rows.source_pitch && rows.row_bytes == rows.row_pitch) {
    std::memcpy(slot, rows.source,
                static_cast<size_t>(rows.num_rows * rows.row_bytes));
  } else {
    for (int64_t row = 0; row < rows.num_rows; ++row) {
      uint8_t* target = slot + row * rows.row_pitch;
      std::memcpy(target, rows.source + row * rows.source_pitch,
                  static_cast<size_t>(rows.row_bytes));
      std::memset(target + rows.row_bytes, 0,
                  static_cast<size_t>(rows.row_pitch - rows.row_bytes));
    }
  }
  kernels::pack_rows(context, {rows.matrix, rows.row_begin, rows.num_rows, slot,
                               rows.row_pitch});
}

void place_elements(glm_device& device, const glm_place_rows_args& args) {
  const glm_matrix& matrix = *args.matrix;
  const int64_t width = kernels::dtype_bytes(matrix.dtype);
  const int64_t row_bytes = matrix.columns * width;
  const int64_t pitch = kernels::round_up(row_bytes, kernels::kChunkBytes);
  const int32_t most = static_cast<int32_t>(kSlotBytes / pitch);
  const int64_t stride = args.source_row_stride * width;
  const kernels::Context context = context_of(device, kPlacement);
  for (int32_t begin = 0; begin < args.num_rows; begin += most) {
    const SourceRows part{
        matrix,
        args.row_begin + begin,
        std::min(most, args.num_rows - begin),
        static_cast<const char*>(args.source) + begin * stride,
        stride,
        row_bytes,
        pitch};
    device.staging->submit(
        [context, part](uint8_t* slot) { stage_rows(context, part, slot); });
  }
}

}

void place_rows(glm_device& device, const glm_place_rows_args& args) {
  const char* where = "place_rows";
  expect_no_capture(device, where);
  expect_rows(where, args);
  if (args.num_rows == 0) return;
  const glm_matrix& matrix = *args.matrix;
  place_elements(device, args);
  if (args.scale_source != nullptr)
    place_floats(device, {args.scale_source, args.scale_dtype, args.num_rows,
                          matrix.row_scale + args.row_begin});
  if (args.bias_source != nullptr)
    place_floats(device, {args.bias_source, args.bias_dtype, args.num_rows,
                          matrix.bias + args.row_begin});
}

void place_vector(glm_device& device, const glm_place_vector_args& args) {
  const char* where = "place_vector";
  expect_no_capture(device, where);
  expect_range(where, "count", 0, INT32_MAX, args.count);
  if (args.count > 0 || args.source_dtype > GLM_DTYPE_BF16)
    expect_floats(where, "source", args.source, args.source_dtype,
                  args.destination);
  place_floats(device,
               {args.source, args.source_dtype, args.count, args.destination});
}

}
