#include "native/kernels/embed/table_row.hpp"
#include "native/kernels/embed_norm_concat/embed_norm_concat.hpp"
#include "native/kernels/rows/norm.hpp"
#include "native/kernels/shapes/shapes.hpp"
#include "native/ptx/dependent_launch.hpp"

namespace glm::kernels {
namespace {

constexpr char kWhere[] = "embed_norm_concat";

struct HalfRows {
  int32_t num_halves;
  float epsilon;
  const int32_t* token_ids;
  const int32_t* positions;
  EmbeddingTable table;
  const float* embedding_norm;
  const __nv_bfloat16* hidden;
  const float* hidden_norm;
  __nv_bfloat16* output;
};

template <typename Element, int32_t num_chunks, bool aligned>
__device__ void load_embedding(const HalfRows& args, int32_t token,
                               rows::Bf16Chunk (&chunks)[num_chunks]) {
  const int32_t id = args.token_ids[token];
  const bool is_first = args.positions[token] == 0;
  load_table_row<Element, num_chunks, aligned>(args.table, is_first ? -1 : id,
                                               chunks);
}

template <int32_t num_chunks, bool aligned>
__device__ void load_hidden(const HalfRows& args, int32_t token,
                            rows::Bf16Chunk (&chunks)[num_chunks]) {
  const int32_t width = args.table.width;
#pragma unroll
  for (int32_t i = 0; i < num_chunks; ++i)
    chunks[i] = rows::load<rows::Bf16Chunk, __nv_bfloat16, aligned>(
        args.hidden + int64_t{token} * width, rows::chunk_begin(i), width);
}

template <typename Element, int32_t num_chunks, bool aligned>
__device__ void norm_half(const HalfRows& args, int32_t half,
                          rows::MeasureBuffer& buffer, int32_t parity) {
  const int32_t width = args.table.width;
  const bool is_hidden = half % 2 != 0;
  const float* weights = is_hidden ? args.hidden_norm : args.embedding_norm;
  rows::FloatChunk weight[num_chunks];
#pragma unroll
  for (int32_t i = 0; i < num_chunks; ++i)
    weight[i] =
        rows::load_floats<aligned>(weights, rows::chunk_begin(i), width);
  rows::Bf16Chunk chunks[num_chunks];
  if (is_hidden)
    load_hidden<num_chunks, aligned>(args, half / 2, chunks);
  else
    load_embedding<Element, num_chunks, aligned>(args, half / 2, chunks);
  rows::RowMeasure own = {0.0f, 0u};
#pragma unroll
  for (int32_t i = 0; i < num_chunks; ++i)
    rows::measure(chunks[i], weight[i], own);
  const rows::RowMeasure whole = rows::row_measure(own, buffer, parity);
  const float factor = rows::norm_factor(whole, width, args.epsilon);
#pragma unroll
  for (int32_t i = 0; i < num_chunks; ++i)
    rows::store<rows::Bf16Chunk, __nv_bfloat16, aligned>(
        args.output + int64_t{half} * width, rows::chunk_begin(i), width,
        rows::narrow(rows::normed(chunks[i], weight[i], factor)));
}

template <typename Element, int32_t num_chunks, bool aligned>
__global__ void __launch_bounds__(rows::kMaxThreads)
    norm_halves(__grid_constant__ const HalfRows args) {
  __shared__ rows::MeasureBuffer buffer;
  ptx::wait_for_predecessor();
  ptx::let_successor_start();
  int32_t parity = 0;
  for (int32_t half = blockIdx.x; half < args.num_halves; half += gridDim.x) {
    norm_half<Element, num_chunks, aligned>(args, half, buffer, parity);
    parity ^= 1;
  }
}

template <typename Element>
void launch_halves(const Context& context, const HalfRows& args) {
  const int32_t width = args.table.width;
  const bool aligned =
      rows::are_aligned(width, {args.table.data, args.embedding_norm,
                                args.hidden, args.hidden_norm, args.output});
  rows::launch_rows<1, 2, 4, 8>(
      kWhere, context, args.num_halves, rows::shape_of(kWhere, width), aligned,
      args, [](auto chunks, auto is_fast) {
        return norm_halves<Element, decltype(chunks)::value,
                           decltype(is_fast)::value>;
      });
}

void expect_arrays(const glm_embed_norm_concat_args& args) {
  expect_pointer(kWhere, "table data", args.table->data);
  expect_pointer(kWhere, "token_ids", args.token_ids);
  expect_pointer(kWhere, "positions", args.positions);
  expect_pointer(kWhere, "embedding_norm", args.embedding_norm);
  expect_pointer(kWhere, "hidden", args.hidden);
  expect_pointer(kWhere, "hidden_norm", args.hidden_norm);
  expect_pointer(kWhere, "output", args.output);
}

}

void embed_norm_concat(const Context& context,
                       const glm_embed_norm_concat_args& args) {
  expect_embed_norm_concat_shapes(args);
  if (args.num_tokens == 0) return;
  expect_arrays(args);
  const glm_matrix& table = *args.table;
  const HalfRows halves = {2 * args.num_tokens,
                           args.epsilon,
                           args.token_ids,
                           args.positions,
                           {table.data, table.rows, table.columns},
                           args.embedding_norm,
                           static_cast<const __nv_bfloat16*>(args.hidden),
                           args.hidden_norm,
                           static_cast<__nv_bfloat16*>(args.output)};
  if (table.dtype == GLM_DTYPE_BF16)
    return launch_halves<__nv_bfloat16>(context, halves);
  launch_halves<float>(context, halves);
}

}
