#include "native/kernels/prefill_attention/prefill_attention.hpp"

#include <algorithm>
#include <cmath>
#include <string>

#include "native/base/failure.hpp"
#include "native/kernels/prefill_attention/launch.hpp"

namespace glm::kernels {
namespace {

using prefill_attention_detail::kMaxSegments;
using prefill_attention_detail::kRowTile;
using prefill_attention_detail::Parameters;

constexpr char kWhere[] = "prefill_attention";
constexpr double kLog2E = 1.4426950408889634;

void expect_scale(float scale) {
  if (!(scale > 0.0f) || !std::isfinite(scale))
    reject(kWhere, "scale", "a positive number", std::to_string(scale));
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
  if (args.num_tokens == args.segments.num_decode_segments) return;
  expect_scale(args.scale);
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
