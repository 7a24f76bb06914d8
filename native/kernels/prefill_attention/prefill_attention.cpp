#include "native/kernels/prefill_attention/prefill_attention.hpp"

#include <algorithm>
#include <cmath>
#include <string>

#include "native/base/failure.hpp"
#include "native/kernels/kv_cache.hpp"
#include "native/kernels/prefill_attention/launch.hpp"

namespace glm::kernels {
namespace {

using prefill_attention_detail::kMaxSegments;
using prefill_attention_detail::kRowTile;
using prefill_attention_detail::Parameters;

constexpr char kWhere[] = "prefill_attention";
constexpr double kLog2E = 1.4426950408889634;
constexpr int32_t kPointerAlignment = 16;

void expect_aligned(const char* what, const void* pointer) {
  expect_pointer(kWhere, what, pointer);
  expect_equal(kWhere, (std::string(what) + " modulo 16").c_str(), 0,
               reinterpret_cast<uintptr_t>(pointer) % kPointerAlignment);
}

void expect_segments(const glm_segments& segments) {
  expect_range(kWhere, "num_decode_segments", 0, segments.num_segments,
               segments.num_decode_segments);
  expect_pointer(kWhere, "query_begin", segments.query_begin);
  expect_pointer(kWhere, "context_length", segments.context_length);
  expect_pointer(kWhere, "table_row", segments.table_row);
  expect_pointer(kWhere, "page_table", segments.page_table);
  expect_range(kWhere, "page_table_stride", 1, INT32_MAX,
               segments.page_table_stride);
}

void expect_arguments(const glm_attention_args& args) {
  expect_range(kWhere, "num_decode_segments", 0, args.num_tokens,
               args.segments.num_decode_segments);
  expect_segments(args.segments);
  expect_kv_cache(kWhere, args.cache);
  expect_layer(kWhere, *args.cache, args.layer);
  expect_group(kWhere, *args.cache, args.num_heads);
  expect_aligned("query", args.query);
  expect_aligned("output", args.output);
  if (!(args.scale > 0.0f) || !std::isfinite(args.scale))
    reject(kWhere, "scale", "a positive number", std::to_string(args.scale));
}

int32_t count_blocks(const Context& context, const glm_attention_args& args,
                     int32_t num_segments) {
  const int64_t num_tokens =
      args.num_tokens - args.segments.num_decode_segments;
  const int32_t group = args.num_heads / args.cache->num_kv_heads;
  const int64_t row_tiles = num_tokens * group / kRowTile + num_segments;
  return static_cast<int32_t>(std::min<int64_t>(
      context.num_multiprocessors, row_tiles * args.cache->num_kv_heads));
}

Parameters make_parameters(const glm_attention_args& args) {
  Parameters parameters = {};
  parameters.query = args.query;
  parameters.output = args.output;
  parameters.cache = *args.cache;
  parameters.segments = args.segments;
  parameters.num_heads = args.num_heads;
  parameters.group = args.num_heads / args.cache->num_kv_heads;
  parameters.layer = args.layer;
  parameters.exponent_factor = static_cast<float>(args.scale * kLog2E);
  return parameters;
}

}

void prefill_attention(const Context& context, const glm_attention_args& args) {
  if (args.num_tokens == args.segments.num_decode_segments ||
      args.segments.num_segments == args.segments.num_decode_segments)
    return;
  expect_arguments(args);
  expect_range(kWhere, "num_multiprocessors", 1, INT32_MAX,
               context.num_multiprocessors);
  Parameters parameters = make_parameters(args);
  const auto launch_rows = args.cache->dtype == GLM_DTYPE_BF16
                               ? prefill_attention_detail::launch_bf16
                               : prefill_attention_detail::launch_f8;
  const int32_t end = args.segments.num_segments;
  for (int32_t begin = args.segments.num_decode_segments; begin < end;
       begin += kMaxSegments) {
    parameters.segment_begin = begin;
    parameters.segment_end = std::min(begin + kMaxSegments, end);
    launch_rows(context.stream,
                count_blocks(context, args, parameters.segment_end - begin),
                parameters);
  }
}

}
