#include <string>

#include "native/kernels/embed/embed.hpp"
#include "native/kernels/embed/table_row.hpp"
#include "native/kernels/rows/checks.hpp"
#include "native/kernels/shapes/shapes.hpp"
#include "native/ptx/dependent_launch.hpp"

namespace glm::kernels {
namespace {

constexpr char kWhere[] = "embed";

struct EmbedRows {
  int32_t num_tokens;
  int32_t id_stride;
  const int32_t* token_ids;
  EmbeddingTable table;
  __nv_bfloat16* residual;
};

template <typename Element, int32_t num_chunks, bool aligned>
__device__ void copy_row(const EmbedRows& args, int32_t row) {
  __nv_bfloat16* destination = args.residual + int64_t{row} * args.table.width;
  rows::Bf16Chunk chunks[num_chunks];
  load_table_row<Element, num_chunks, aligned>(
      args.table, args.token_ids[int64_t{row} * args.id_stride], chunks);
#pragma unroll
  for (int32_t i = 0; i < num_chunks; ++i)
    rows::store<rows::Bf16Chunk, __nv_bfloat16, aligned>(
        destination, rows::chunk_begin(i), args.table.width, chunks[i]);
}

template <typename Element, int32_t num_chunks, bool aligned>
__global__ void __launch_bounds__(rows::kMaxThreads)
    embed_rows(EmbedRows args) {
  ptx::wait_for_predecessor();
  ptx::let_successor_start();
  for (int32_t row = blockIdx.x; row < args.num_tokens; row += gridDim.x)
    copy_row<Element, num_chunks, aligned>(args, row);
}

template <typename Element>
void launch_embed(const Context& context, const EmbedRows& args) {
  const EmbeddingTable& table = args.table;
  rows::RowShape shape = rows::shape_of(kWhere, table.width);
  bool aligned = rows::are_aligned(table.width, {table.data, args.residual});
  rows::launch_rows<1, 2, 4, 8>(
      kWhere, context, args.num_tokens, shape, aligned, args,
      [](auto chunks, auto is_fast) {
        return embed_rows<Element, decltype(chunks)::value,
                          decltype(is_fast)::value>;
      });
}

}

void embed(const Context& context, const glm_embed_args& args) {
  expect_embed_shapes(args);
  expect_pointer(kWhere, "table data", args.table->data);
  if (args.num_tokens == 0) return;
  expect_pointer(kWhere, "token_ids", args.token_ids);
  expect_pointer(kWhere, "residual", args.residual);
  const glm_matrix& table = *args.table;
  EmbedRows rows = {args.num_tokens,
                    args.id_stride,
                    args.token_ids,
                    {table.data, table.rows, table.columns},
                    static_cast<__nv_bfloat16*>(args.residual)};
  if (table.dtype == GLM_DTYPE_BF16)
    return launch_embed<__nv_bfloat16>(context, rows);
  launch_embed<float>(context, rows);
}

}
