#include "native/kernels/add_norm_quantise/add_norm_quantise.hpp"
#include "native/kernels/quantise/codes_of_row.hpp"
#include "native/kernels/rows/checks.hpp"
#include "native/kernels/rows/prefetch.hpp"
#include "native/ptx/dependent_launch.hpp"

namespace glm::kernels {
namespace {

constexpr char kWhere[] = "add_norm_quantise";
constexpr int32_t kFewRows = 16;

struct NormRows {
  int32_t num_tokens;
  int32_t width;
  float epsilon;
  __nv_bfloat16* residual;
  const __nv_bfloat16* delta;
  const float* weight;
  __nv_bfloat16* plain;
  uint8_t* codes;
  float* row_scale;
};

using rows::Bf16Chunk;
using rows::FloatChunk;

__device__ Bf16Chunk sum_of(const Bf16Chunk& residual, const Bf16Chunk& delta) {
  FloatChunk sum = rows::widen(residual);
  FloatChunk added = rows::widen(delta);
#pragma unroll
  for (int32_t i = 0; i < rows::kChunkElements; ++i)
    sum.values[i] += added.values[i];
  return rows::narrow(sum);
}

template <int32_t num_chunks, bool aligned>
__device__ void add_delta(const NormRows& args, int64_t offset,
                          Bf16Chunk (&row)[num_chunks]) {
  Bf16Chunk delta[num_chunks];
#pragma unroll
  for (int32_t i = 0; i < num_chunks; ++i)
    row[i] = rows::load<Bf16Chunk, __nv_bfloat16, aligned>(
        args.residual + offset, rows::chunk_begin(i), args.width);
  if (args.delta == nullptr) return;
#pragma unroll
  for (int32_t i = 0; i < num_chunks; ++i)
    delta[i] = rows::load<Bf16Chunk, __nv_bfloat16, aligned>(
        args.delta + offset, rows::chunk_begin(i), args.width);
#pragma unroll
  for (int32_t i = 0; i < num_chunks; ++i) {
    row[i] = sum_of(row[i], delta[i]);
    rows::store<Bf16Chunk, __nv_bfloat16, aligned>(
        args.residual + offset, rows::chunk_begin(i), args.width, row[i]);
  }
}

__device__ void measure(const Bf16Chunk& chunk, const FloatChunk& weight,
                        rows::RowMeasure& own) {
  FloatChunk values = rows::widen(chunk);
#pragma unroll
  for (int32_t i = 0; i < rows::kChunkElements; ++i) {
    float value = values.values[i];
    own.square_sum = fmaf(value, value, own.square_sum);
    own.largest_bits =
        max(own.largest_bits, rows::magnitude_bits(value * weight.values[i]));
  }
}

__device__ FloatChunk normed(const Bf16Chunk& chunk, const FloatChunk& weight,
                             float factor) {
  FloatChunk values = rows::widen(chunk);
#pragma unroll
  for (int32_t i = 0; i < rows::kChunkElements; ++i)
    values.values[i] = (values.values[i] * weight.values[i]) * factor;
  return values;
}

template <int32_t num_chunks, bool aligned>
__device__ void norm_row(const NormRows& args, int32_t row,
                         const FloatChunk (&weight)[num_chunks],
                         rows::MeasureBuffer& buffer, int32_t parity) {
  int64_t offset = int64_t{row} * args.width;
  Bf16Chunk chunks[num_chunks];
  add_delta<num_chunks, aligned>(args, offset, chunks);
  rows::RowMeasure own = {0.0f, 0u};
#pragma unroll
  for (int32_t i = 0; i < num_chunks; ++i) measure(chunks[i], weight[i], own);
  rows::RowMeasure whole = rows::block_measure(own, buffer, parity);
  float factor =
      rsqrtf(whole.square_sum / static_cast<float>(args.width) + args.epsilon);
  auto values_of = [&](int32_t i) {
    return normed(chunks[i], weight[i], factor);
  };
  if (args.plain != nullptr)
#pragma unroll
    for (int32_t i = 0; i < num_chunks; ++i)
      rows::store<Bf16Chunk, __nv_bfloat16, aligned>(
          args.plain + offset, rows::chunk_begin(i), args.width,
          rows::narrow(values_of(i)));
  if (args.codes == nullptr) return;
  float largest = __uint_as_float(whole.largest_bits) * factor;
  write_codes<num_chunks, aligned>(values_of, largest, args.width,
                                   args.codes + offset, args.row_scale + row);
}

template <int32_t num_chunks, bool aligned>
__global__ void __launch_bounds__(rows::kMaxThreads) norm_rows(NormRows args) {
  __shared__ rows::MeasureBuffer buffer;
  const bool has_few = args.num_tokens <= kFewRows;
  if (has_few) ptx::let_successor_start();
  FloatChunk weight[num_chunks];
#pragma unroll
  for (int32_t i = 0; i < num_chunks; ++i)
    weight[i] = rows::load_floats<aligned>(args.weight, rows::chunk_begin(i),
                                           args.width);
  const int32_t first = blockIdx.x;
  int32_t parity = 0;
#pragma unroll 1
  for (int32_t row = first; row < args.num_tokens; row += gridDim.x) {
    if (row == first) {
      ptx::wait_for_predecessor();
      if (!has_few) ptx::let_successor_start();
    }
    rows::prefetch_next<aligned>(args.residual, row, args.num_tokens,
                                 args.width);
    rows::prefetch_next<aligned>(args.delta, row, args.num_tokens, args.width);
    norm_row<num_chunks, aligned>(args, row, weight, buffer, parity);
    parity ^= 1;
  }
}

NormRows rows_of(const glm_add_norm_quantise_args& args) {
  return {args.rows.num_tokens,
          args.hidden_size,
          args.epsilon,
          static_cast<__nv_bfloat16*>(args.residual),
          static_cast<const __nv_bfloat16*>(args.delta),
          args.weight,
          static_cast<__nv_bfloat16*>(args.output.plain),
          args.output.codes,
          args.output.row_scale};
}

}

void add_norm_quantise(const Context& context,
                       const glm_add_norm_quantise_args& args) {
  expect_rows(kWhere, args.rows);
  expect_range(kWhere, "hidden_size", 1, INT32_MAX, args.hidden_size);
  expect_output(kWhere, args.output);
  if (args.rows.num_tokens == 0) return;
  expect_pointer(kWhere, "residual", args.residual);
  expect_pointer(kWhere, "weight", args.weight);
  NormRows given = rows_of(args);
  rows::RowShape shape = rows::shape_of(kWhere, given.width);
  bool aligned = rows::are_aligned(
      given.width,
      {given.residual, given.delta, given.weight, given.plain, given.codes});
  rows::with_chunks<1, 2, 4, 8>(
      shape.num_chunks, aligned, [&](auto chunks, auto is_fast) {
        auto kernel =
            norm_rows<decltype(chunks)::value, decltype(is_fast)::value>;
        rows::launch_rows(kWhere, context, given.num_tokens, shape, kernel,
                          given);
      });
}

int64_t add_norm_quantise_scratch_bytes(const glm_workspace_shape&) {
  return 0;
}

}
