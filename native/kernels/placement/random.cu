#include <cuda_bf16.h>

#include <cmath>
#include <string>

#include "native/base/cuda.hpp"
#include "native/base/mixed_bits.hpp"
#include "native/kernels/blackwell/stored_rows.hpp"
#include "native/kernels/layout.hpp"
#include "native/kernels/placement/placement.hpp"
#include "native/ptx/dependent_launch.hpp"

namespace glm::kernels {
namespace {

constexpr int32_t kThreads = 256;
constexpr int32_t kLanes = 8;
constexpr float kUniformDeviation = 0.57735027f;
constexpr float kCodeDeviation = 1.1587810f;
constexpr uint64_t kSignBits = 0x8080808080808080ull;
constexpr uint64_t kCodeBits = 0x0F0F0F0F0F0F0F0Full;
constexpr uint64_t kLeastCodes = 0x3030303030303030ull;

__device__ float uniform(uint32_t bits, float deviation) {
  float unit = static_cast<float>(bits) * 0x1p-15f - 1.0f;
  return unit * (deviation / kUniformDeviation);
}

__device__ uint64_t random_word(int32_t dtype, uint64_t bits, float deviation) {
  if (dtype == GLM_DTYPE_F8_E4M3)
    return (bits & kSignBits) | ((bits & kCodeBits) + kLeastCodes);
  uint64_t word = 0;
  int32_t width = dtype_bytes(dtype) * 8;
  for (int32_t i = 0; i < 64 / width; ++i) {
    float value =
        uniform(static_cast<uint32_t>(bits >> (16 * i)) & 0xFFFF, deviation);
    uint64_t piece = dtype == GLM_DTYPE_F32
                         ? __float_as_uint(value)
                         : __bfloat16_as_ushort(__float2bfloat16(value));
    word |= piece << (i * width);
  }
  return word;
}

__device__ uint64_t kept(uint64_t word, int64_t bytes) {
  if (bytes >= kLanes) return word;
  return bytes <= 0 ? 0 : word & ((uint64_t{1} << (8 * bytes)) - 1);
}

__device__ void store(const glm_matrix& matrix, int32_t row, int32_t byte,
                      int64_t row_bytes, uint64_t word) {
  uint8_t* data = static_cast<uint8_t*>(matrix.data);
  if (matrix.role != GLM_MATRIX_TABLE) {
    int32_t packed = packed_row(matrix.role, matrix.rows, row);
    int64_t at = packed_offset(matrix.dtype, matrix.columns, packed,
                               byte / dtype_bytes(matrix.dtype));
    *reinterpret_cast<uint64_t*>(data + at) = kept(word, row_bytes - byte);
    return;
  }
  for (int32_t i = 0; i < kLanes && byte + i < row_bytes; ++i)
    data[row * row_bytes + byte + i] = static_cast<uint8_t>(word >> (8 * i));
}

__global__ void __launch_bounds__(kThreads)
    place_random_kernel(glm_matrix matrix, uint64_t seed, float deviation,
                        int32_t words_a_row) {
  ptx::wait_for_predecessor();
  int64_t row_bytes = int64_t{matrix.columns} * dtype_bytes(matrix.dtype);
  int64_t count = int64_t{matrix.rows} * words_a_row;
  int64_t step = int64_t{gridDim.x} * kThreads;
  for (int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x; i < count;
       i += step) {
    int32_t row = static_cast<int32_t>(i / words_a_row);
    int32_t byte = static_cast<int32_t>(i % words_a_row) * kLanes;
    uint64_t place = static_cast<uint64_t>(row) << 32 | byte;
    uint64_t bits = mixed(mixed(seed * kGolden + 1) ^ (place * kGolden));
    store(matrix, row, byte, row_bytes,
          random_word(matrix.dtype, bits, deviation));
  }
}

__global__ void __launch_bounds__(kThreads)
    fill_rows_kernel(float* destination, int32_t count, float value) {
  ptx::wait_for_predecessor();
  int32_t i = static_cast<int32_t>(blockIdx.x) * kThreads +
              static_cast<int32_t>(threadIdx.x);
  if (i < count) destination[i] = value;
}

void fill_rows(const Context& context, float* destination, int32_t count,
               float value) {
  if (destination == nullptr) return;
  uint32_t blocks = static_cast<uint32_t>(ceil_divide(count, kThreads));
  launch("place_random", context.stream, {dim3(blocks), dim3(kThreads)},
         fill_rows_kernel, destination, count, value);
}

}

void place_random(const Context& context, const glm_place_random_args& args) {
  const char* where = "place_random";
  expect_pointer(where, "matrix", args.matrix);
  expect_matrix(where, *args.matrix);
  const bool stored = blackwell::stores_rows(context, *args.matrix);
  const glm_matrix matrix =
      stored ? blackwell::as_table(*args.matrix) : *args.matrix;
  if (!(args.standard_deviation > 0) || !std::isfinite(args.standard_deviation))
    reject(where, "standard_deviation", "a finite number above 0",
           std::to_string(args.standard_deviation));
  int64_t row_bytes = int64_t{matrix.columns} * dtype_bytes(matrix.dtype);
  bool table = matrix.role == GLM_MATRIX_TABLE;
  int64_t padded = table ? row_bytes : round_up(row_bytes, kTileRowBytes);
  int32_t words = static_cast<int32_t>(ceil_divide(padded, kLanes));
  uint32_t blocks = static_cast<uint32_t>(context.num_multiprocessors) * 8;
  launch(where, context.stream, {dim3(blocks), dim3(kThreads)},
         place_random_kernel, matrix, args.seed, args.standard_deviation,
         words);
  if (!table) clear_padding(context, matrix);
  if (stored) blackwell::clear_row_ends(context, *args.matrix);
  fill_rows(context, matrix.row_scale, matrix.rows,
            args.standard_deviation / kCodeDeviation);
  fill_rows(context, matrix.bias, matrix.rows, 0.0f);
}

}
