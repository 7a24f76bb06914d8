#include "native/kernels/quantise/codes_of_row.hpp"
#include "native/kernels/rows/checks.hpp"
#include "native/kernels/rows/prefetch.hpp"
#include "native/kernels/rows/swiglu.hpp"
#include "native/kernels/shapes/shapes.hpp"
#include "native/kernels/swiglu_quantise/swiglu_quantise.hpp"
#include "native/ptx/dependent_launch.hpp"

namespace glm::kernels {
namespace {

constexpr char kWhere[] = "swiglu_quantise";

struct SwigluRows {
  int32_t num_tokens;
  int32_t width;
  const __nv_bfloat16* gate_up;
  __nv_bfloat16* plain;
  uint8_t* codes;
  float* row_scale;
};

template <bool aligned>
__device__ rows::FloatChunk gated_chunk(const __nv_bfloat16* gate,
                                        int32_t begin, int32_t width) {
  using rows::Bf16Chunk;
  auto g = rows::widen(
      rows::load<Bf16Chunk, __nv_bfloat16, aligned>(gate, begin, width));
  auto u = rows::widen(rows::load<Bf16Chunk, __nv_bfloat16, aligned>(
      gate + width, begin, width));
#pragma unroll
  for (int32_t i = 0; i < rows::kChunkElements; ++i)
    g.values[i] = swiglu(g.values[i], u.values[i]);
  return g;
}

template <int32_t num_chunks, bool aligned>
__device__ void gate_row(const SwigluRows& args, int32_t row,
                         rows::MeasureBuffer& buffer, int32_t parity) {
  const __nv_bfloat16* gate = args.gate_up + int64_t{row} * 2 * args.width;
  int64_t offset = int64_t{row} * args.width;
  rows::FloatChunk chunks[num_chunks];
#pragma unroll
  for (int32_t i = 0; i < num_chunks; ++i)
    chunks[i] = gated_chunk<aligned>(gate, rows::chunk_begin(i), args.width);
  if (args.plain != nullptr)
#pragma unroll
    for (int32_t i = 0; i < num_chunks; ++i)
      rows::store<rows::Bf16Chunk, __nv_bfloat16, aligned>(
          args.plain + offset, rows::chunk_begin(i), args.width,
          rows::narrow(chunks[i]));
  if (args.codes == nullptr) return;
  rows::RowMeasure own = {0.0f, 0u};
#pragma unroll
  for (int32_t i = 0; i < num_chunks; ++i)
    own.largest_bits = max(own.largest_bits, largest_bits(chunks[i]));
  rows::RowMeasure whole = rows::row_measure(own, buffer, parity);
  write_codes<num_chunks, aligned>(
      [&](int32_t i) { return chunks[i]; }, __uint_as_float(whole.largest_bits),
      args.width, args.codes + offset, args.row_scale + row);
}

template <int32_t num_chunks, bool aligned>
__global__ void __launch_bounds__(rows::kMaxThreads)
    gate_rows(SwigluRows args) {
  __shared__ rows::MeasureBuffer buffer;
  ptx::wait_for_predecessor();
  ptx::let_successor_start();
  int32_t parity = 0;
  for (int32_t row = blockIdx.x; row < args.num_tokens; row += gridDim.x) {
    rows::prefetch_next<aligned>(args.gate_up, row, args.num_tokens,
                                 2 * int64_t{args.width});
    gate_row<num_chunks, aligned>(args, row, buffer, parity);
    parity ^= 1;
  }
}

}

void swiglu_quantise(const Context& context,
                     const glm_swiglu_quantise_args& args) {
  expect_swiglu_quantise_shapes(args);
  expect_output(kWhere, args.output);
  if (args.num_tokens == 0) return;
  expect_pointer(kWhere, "gate_up", args.gate_up);
  const glm_activation_output& output = args.output;
  SwigluRows given = {args.num_tokens,
                      args.width,
                      static_cast<const __nv_bfloat16*>(args.gate_up),
                      static_cast<__nv_bfloat16*>(output.plain),
                      output.codes,
                      output.row_scale};
  rows::RowShape shape = rows::small_shape_of(kWhere, args.width);
  bool aligned =
      rows::are_aligned(args.width, {args.gate_up, output.plain, output.codes});
  rows::launch_rows<1, 3, 4, 8>(
      kWhere, context, given.num_tokens, shape, aligned, given,
      [](auto chunks, auto is_fast) {
        return gate_rows<decltype(chunks)::value, decltype(is_fast)::value>;
      });
}

}
