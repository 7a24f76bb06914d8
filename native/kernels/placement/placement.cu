#include <cuda_bf16.h>

#include "native/base/cuda.hpp"
#include "native/kernels/blackwell/stored_rows.hpp"
#include "native/kernels/layout.hpp"
#include "native/kernels/placement/placement.hpp"
#include "native/kernels/shapes/shapes.hpp"
#include "native/ptx/dependent_launch.hpp"

namespace glm::kernels {
namespace {

constexpr int32_t kThreads = 256;

struct RowShape {
  int32_t row_bytes;
  int32_t num_chunks;
};

__device__ void copy_tail(uint8_t* destination, const uint8_t* source,
                          int32_t bytes) {
  for (int32_t i = 0; i < bytes; ++i) destination[i] = source[i];
}

__device__ void place_chunk(const StagedRows& rows, const RowShape& shape,
                            int32_t row, int32_t chunk) {
  const glm_matrix& matrix = rows.matrix;
  int32_t byte = chunk * kChunkBytes;
  const uint8_t* source = static_cast<const uint8_t*>(rows.data) +
                          int64_t{row} * rows.row_pitch + byte;
  uint8_t* data = static_cast<uint8_t*>(matrix.data);
  int32_t logical = rows.row_begin + row;
  if (matrix.role == GLM_MATRIX_TABLE) {
    copy_tail(data + int64_t{logical} * shape.row_bytes + byte, source,
              min(kChunkBytes, shape.row_bytes - byte));
    return;
  }
  uint4 value = make_uint4(0, 0, 0, 0);
  if (byte < shape.row_bytes) value = *reinterpret_cast<const uint4*>(source);
  int32_t packed = packed_row(matrix.role, matrix.rows, logical);
  int64_t offset = packed_offset(matrix.dtype, matrix.columns, packed,
                                 byte / dtype_bytes(matrix.dtype));
  *reinterpret_cast<uint4*>(data + offset) = value;
}

__global__ void __launch_bounds__(kThreads)
    pack_rows_kernel(StagedRows rows, RowShape shape) {
  ptx::wait_for_predecessor();
  int64_t count = int64_t{rows.num_rows} * shape.num_chunks;
  int64_t step = int64_t{gridDim.x} * kThreads;
  for (int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x; i < count;
       i += step)
    place_chunk(rows, shape, static_cast<int32_t>(i / shape.num_chunks),
                static_cast<int32_t>(i % shape.num_chunks));
}

__global__ void __launch_bounds__(kThreads)
    copy_table_kernel(StagedRows rows, RowShape shape) {
  ptx::wait_for_predecessor();
  const uint8_t* source = static_cast<const uint8_t*>(rows.data);
  uint8_t* destination = static_cast<uint8_t*>(rows.matrix.data) +
                         int64_t{rows.row_begin} * shape.row_bytes;
  int32_t chunks = shape.row_bytes / kChunkBytes;
  int64_t count = int64_t{rows.num_rows} * chunks;
  int64_t step = int64_t{gridDim.x} * kThreads;
  for (int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x; i < count;
       i += step) {
    int64_t row = i / chunks, byte = i % chunks * kChunkBytes;
    *reinterpret_cast<uint4*>(destination + row * shape.row_bytes + byte) =
        *reinterpret_cast<const uint4*>(source + row * rows.row_pitch + byte);
  }
}

__global__ void __launch_bounds__(kThreads)
    clear_padding_kernel(glm_matrix matrix, int32_t first) {
  ptx::wait_for_predecessor();
  int32_t packed = first + static_cast<int32_t>(blockIdx.x);
  if (logical_row(matrix.role, matrix.rows, packed) >= 0) return;
  int32_t columns = num_column_tiles(matrix.dtype, matrix.columns) *
                    (kTileRowBytes / dtype_bytes(matrix.dtype));
  int32_t step = kChunkBytes / dtype_bytes(matrix.dtype);
  for (int32_t column = static_cast<int32_t>(threadIdx.x) * step;
       column < columns; column += kThreads * step) {
    int64_t offset =
        packed_offset(matrix.dtype, matrix.columns, packed, column);
    *reinterpret_cast<uint4*>(static_cast<uint8_t*>(matrix.data) + offset) =
        make_uint4(0, 0, 0, 0);
  }
}

__global__ void __launch_bounds__(kThreads)
    widen_floats_kernel(StagedFloats floats) {
  ptx::wait_for_predecessor();
  int32_t i = static_cast<int32_t>(blockIdx.x) * kThreads +
              static_cast<int32_t>(threadIdx.x);
  if (i >= floats.count) return;
  floats.destination[i] =
      floats.dtype == GLM_DTYPE_F32
          ? static_cast<const float*>(floats.data)[i]
          : __bfloat162float(static_cast<const __nv_bfloat16*>(floats.data)[i]);
}

__global__ void __launch_bounds__(kThreads)
    rope_table_kernel(glm_rope_table_args args) {
  ptx::wait_for_predecessor();
  int32_t half = args.rotary_dim / 2;
  int64_t count = int64_t{args.num_positions} * half;
  int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i >= count) return;
  int32_t pair = static_cast<int32_t>(i % half);
  double frequency = pow(args.theta, -2.0 * pair / args.rotary_dim);
  double angle = static_cast<double>(i / half) * frequency;
  args.cosine[i] = static_cast<float>(cos(angle));
  args.sine[i] = static_cast<float>(sin(angle));
}

dim3 blocks_of(int64_t count) {
  return dim3(static_cast<uint32_t>(ceil_divide(count, kThreads)));
}

}

void expect_matrix(const char* where, const glm_matrix& matrix) {
  expect_matrix_shape(where, matrix);
  expect_pointer(where, "matrix data", matrix.data);
  if (matrix.dtype == GLM_DTYPE_F8_E4M3)
    expect_pointer(where, "row_scale for an FP8 matrix", matrix.row_scale);
}

void clear_padding(const Context& context, const glm_matrix& matrix) {
  int32_t end = num_row_tiles(matrix.role, matrix.rows) * kTileRows;
  int32_t first = matrix.role == GLM_MATRIX_GATE_UP
                      ? matrix.rows / 2 / kPairRows * (2 * kPairRows)
                      : matrix.rows;
  launch("place_rows", context.stream,
         {dim3(static_cast<uint32_t>(end - first)), dim3(kThreads)},
         clear_padding_kernel, matrix, first);
}

void pack_tiles(const Context& context, const StagedRows& rows) {
  const glm_matrix& matrix = rows.matrix;
  int32_t row_bytes = matrix.columns * dtype_bytes(matrix.dtype);
  bool table = matrix.role == GLM_MATRIX_TABLE;
  bool aligned = row_bytes % kChunkBytes == 0;
  int64_t padded = table ? row_bytes : round_up(row_bytes, kTileRowBytes);
  RowShape shape{row_bytes,
                 static_cast<int32_t>(ceil_divide(padded, kChunkBytes))};
  int64_t count = int64_t{rows.num_rows} * shape.num_chunks;
  launch("place_rows", context.stream, {blocks_of(count), dim3(kThreads)},
         table && aligned ? copy_table_kernel : pack_rows_kernel, rows, shape);
  if (!table && rows.row_begin + rows.num_rows == matrix.rows)
    clear_padding(context, matrix);
}

void pack_rows(const Context& context, const StagedRows& rows) {
  StagedRows placed = rows;
  if (blackwell::stores_rows(context, rows.matrix))
    placed.matrix = blackwell::as_table(rows.matrix);
  pack_tiles(context, placed);
}

void widen_floats(const Context& context, const StagedFloats& floats) {
  launch("place_vector", context.stream,
         {blocks_of(floats.count), dim3(kThreads)}, widen_floats_kernel,
         floats);
}

void rope_table(const Context& context, const glm_rope_table_args& args) {
  const char* where = "rope_table";
  expect_range(where, "rotary_dim", 0, INT32_MAX, args.rotary_dim);
  expect_equal(where, "rotary_dim modulo 2", 0, args.rotary_dim % 2);
  expect_range(where, "num_positions", 0, INT32_MAX, args.num_positions);
  int64_t count = int64_t{args.num_positions} * (args.rotary_dim / 2);
  if (count == 0) return;
  expect_pointer(where, "cosine", args.cosine);
  expect_pointer(where, "sine", args.sine);
  launch(where, context.stream, {blocks_of(count), dim3(kThreads)},
         rope_table_kernel, args);
}

}
