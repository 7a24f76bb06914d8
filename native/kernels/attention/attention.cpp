#include "native/kernels/attention/attention.hpp"

#include <algorithm>
#include <string>

#include "native/base/cuda.hpp"
#include "native/kernels/attention/decode_attention.hpp"
#include "native/kernels/attention/decode_scratch.hpp"
#include "native/kernels/attention/row_list.hpp"
#include "native/kernels/blackwell/stored_rows.hpp"
#include "native/kernels/kv_cache.hpp"
#include "native/kernels/layout.hpp"
#include "native/kernels/prefill_attention/prefill_attention.hpp"
#include "native/kernels/shapes/shapes.hpp"

namespace glm::kernels {
namespace {

constexpr const char* kWhere = "attention";

void expect_rows(const glm_attention_args& args) {
  const glm_segments& segments = args.segments;
  expect_range(kWhere, "num_tokens", 0, INT32_MAX, args.num_tokens);
  expect_range(kWhere, "num_segments", 0, INT32_MAX - 1, segments.num_segments);
  expect_range(kWhere, "num_decode_segments", 0,
               std::min(segments.num_segments, args.num_tokens),
               segments.num_decode_segments);
}

void expect_segments(const glm_segments& segments) {
  expect_pointer(kWhere, "query_begin", segments.query_begin);
  expect_pointer(kWhere, "context_length", segments.context_length);
  expect_pointer(kWhere, "table_row", segments.table_row);
  expect_pointer(kWhere, "page_table", segments.page_table);
  expect_range(kWhere, "page_table_stride", 1, INT32_MAX,
               segments.page_table_stride);
  expect_range(kWhere, "num_table_rows", 1, INT32_MAX, segments.num_table_rows);
  expect_range(kWhere, "rows_per_sequence", 1, INT32_MAX,
               segments.rows_per_sequence);
}

void expect_aligned(const char* what, const void* pointer) {
  expect_pointer(kWhere, what, pointer);
  expect_equal(kWhere, what, 0, reinterpret_cast<uintptr_t>(pointer) % 16);
}

void clear_output(const Context& context, const glm_attention_args& args) {
  const int64_t bytes = int64_t{args.num_tokens} * args.num_heads *
                        args.cache->head_dim * dtype_bytes(GLM_DTYPE_BF16);
  check(cudaMemsetAsync(args.output, 0, static_cast<size_t>(bytes),
                        context.stream),
        "attention: clearing the output");
}

void attend_decode_rows(const Context& context,
                        const glm_attention_args& args) {
  const glm_segments& segments = args.segments;
  decode_attention(context, args,
                   {0, segments.num_decode_segments, segments.context_length,
                    segments.table_row, false});
}

void attend_row_by_row(const Context& context, const glm_attention_args& args) {
  const int32_t count = args.num_tokens - args.segments.num_decode_segments;
  const int64_t list_bytes =
      round_up(int64_t{count} * 4, decode::kListAlignment);
  Context rest = context;
  rest.scratch.bytes -= 2 * list_bytes;
  if (rest.scratch.bytes <= 0)
    reject(kWhere, "scratch", std::to_string(2 * list_bytes) + " bytes or more",
           std::to_string(context.scratch.bytes));
  auto* tail = static_cast<uint8_t*>(context.scratch.data) + rest.scratch.bytes;
  const RowList list = {reinterpret_cast<int32_t*>(tail),
                        reinterpret_cast<int32_t*>(tail + list_bytes)};
  list_prefill_rows(context, args, list);
  decode_attention(rest, args,
                   {args.segments.num_decode_segments, count,
                    list.context_length, list.table_row, true});
}

}

void attention(const Context& context, const glm_attention_args& args) {
  expect_rows(args);
  expect_kv_cache(kWhere, args.cache);
  expect_attention_shapes(args);
  if (args.num_tokens == 0) return;
  expect_aligned("query", args.query);
  expect_aligned("output", args.output);
  if (args.segments.num_segments == 0) return clear_output(context, args);
  expect_segments(args.segments);
  if (args.segments.num_decode_segments > 0) attend_decode_rows(context, args);
  if (args.segments.num_segments == args.segments.num_decode_segments) return;
  if (context.capability == blackwell::kCapability)
    attend_row_by_row(context, args);
  else
    prefill_attention(context, args);
}

}
