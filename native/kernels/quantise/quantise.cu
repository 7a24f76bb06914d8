#include "native/kernels/quantise/codes_of_row.hpp"
#include "native/kernels/quantise/quantise.hpp"
#include "native/kernels/rows/checks.hpp"
#include "native/kernels/rows/prefetch.hpp"
#include "native/kernels/shapes/shapes.hpp"
#include "native/ptx/dependent_launch.hpp"

namespace glm::kernels {
namespace {

constexpr char kWhere[] = "quantise";

struct QuantiseRows {
  int32_t num_tokens;
  int32_t width;
  const __nv_bfloat16* input;
  uint8_t* codes;
  float* row_scale;
};

template <int32_t num_chunks, bool aligned>
__device__ void quantise_row(const QuantiseRows& args, int32_t row,
                             rows::MeasureBuffer& buffer, int32_t parity) {
  const __nv_bfloat16* input = args.input + int64_t{row} * args.width;
  rows::Bf16Chunk chunks[num_chunks];
  rows::RowMeasure own = {0.0f, 0u};
#pragma unroll
  for (int32_t i = 0; i < num_chunks; ++i)
    chunks[i] = rows::load<rows::Bf16Chunk, __nv_bfloat16, aligned>(
        input, rows::chunk_begin(i), args.width);
#pragma unroll
  for (int32_t i = 0; i < num_chunks; ++i)
    own.largest_bits =
        max(own.largest_bits, largest_bits(rows::widen(chunks[i])));
  rows::RowMeasure whole = rows::row_measure(own, buffer, parity);
  write_codes<num_chunks, aligned>(
      [&](int32_t i) { return rows::widen(chunks[i]); },
      __uint_as_float(whole.largest_bits), args.width,
      args.codes + int64_t{row} * args.width, args.row_scale + row);
}

template <int32_t num_chunks, bool aligned>
__global__ void __launch_bounds__(rows::kMaxThreads)
    quantise_rows(QuantiseRows args) {
  __shared__ rows::MeasureBuffer buffer;
  ptx::let_successor_start();
  ptx::wait_for_predecessor();
  int32_t parity = 0;
  for (int32_t row = blockIdx.x; row < args.num_tokens; row += gridDim.x) {
    rows::prefetch_next<aligned>(args.input, row, args.num_tokens, args.width);
    quantise_row<num_chunks, aligned>(args, row, buffer, parity);
    parity ^= 1;
  }
}

}

void quantise(const Context& context, const glm_quantise_args& args) {
  expect_quantise_shapes(args);
  if (args.num_tokens == 0) return;
  expect_pointer(kWhere, "input", args.input);
  expect_pointer(kWhere, "codes", args.codes);
  expect_pointer(kWhere, "row_scale", args.row_scale);
  QuantiseRows given = {args.num_tokens, args.width,
                        static_cast<const __nv_bfloat16*>(args.input),
                        args.codes, args.row_scale};
  const rows::RowShape shape = rows::small_shape_of(kWhere, args.width);
  const bool aligned = rows::are_aligned(args.width, {args.input, args.codes});
  rows::launch_rows<1, 3, 4, 8>(
      kWhere, context, given.num_tokens, shape, aligned, given,
      [](auto chunks, auto is_fast) {
        return quantise_rows<decltype(chunks)::value, decltype(is_fast)::value>;
      });
}

}
