#include <algorithm>
#include <string>

#include "native/base/cuda.hpp"
#include "native/kernels/attention/decode_attention.hpp"
#include "native/kernels/attention/decode_combine.hpp"
#include "native/kernels/attention/decode_items.hpp"
#include "native/kernels/attention/decode_scores.hpp"
#include "native/kernels/attention/decode_share.hpp"
#include "native/kernels/attention/decode_start.hpp"
#include "native/kernels/attention/decode_stream.hpp"
#include "native/kernels/attention/decode_values.hpp"
#include "native/kernels/kv_cache.hpp"

namespace glm::kernels {
namespace {

using namespace decode;

constexpr int32_t kFewRows = 16;

template <typename S>
__device__ void stream_items(const Arguments& args, Shared<S>& shared) {
  Stream<S> stream = {args, shared, static_cast<int32_t>(threadIdx.x) % 32,
                      args.waits_first};
  Walk<S> walk(args, shared);
  Item next = walk.take_or_nothing();
  int32_t next_page = stream.page_of_lane(next, 0);
  while (next.has_splits()) {
    const Item item = next;
    const int32_t page = next_page;
    next = walk.take_or_nothing();
    next_page = stream.page_of_lane(next, 0);
    stream.send_item(item, page);
  }
  stream.wait();
}

template <typename S>
__global__ __launch_bounds__(kThreads,
                             1) void decode_attention_kernel(Arguments args) {
  extern __shared__ __align__(1024) uint8_t memory[];
  auto& shared = *reinterpret_cast<Shared<S>*>(memory);
  if (args.has_few_rows) ptx::let_successor_start();
  if (args.waits_first) ptx::wait_for_predecessor();
  prepare<S>(args, shared);
  const int32_t warp = static_cast<int32_t>(threadIdx.x) / 32;
  if (warp == kStreamWarp) {
    stream_items<S>(args, shared);
    list_open_contexts<S>(args, shared);
  } else {
    ptx::wait_for_predecessor();
    if (!args.has_few_rows) ptx::let_successor_start();
    if (warp < kScoreWarps)
      score_items<S>(args, shared);
    else
      value_items<S>(args, shared);
  }
  combine_contexts<S>(args, shared);
}

constexpr int32_t padded_dims(int32_t dtype, int32_t head_dim) {
  return num_halves(dtype, head_dim) * kHalfBytes / dtype_bytes(dtype);
}

struct ScratchLayout {
  int64_t splits_of_share;
  int64_t partials;
  int64_t bytes;
};

struct ScratchShape {
  int64_t num_segments;
  int64_t blocks_of_context;
  int64_t splits_of_context;
  int64_t num_heads;
  int64_t num_kv_heads;
  int32_t head_dim;
};

ScratchLayout layout_of_slots(const ScratchShape& shape, int64_t num_slots) {
  const int64_t rows = num_slots * (shape.num_heads / shape.num_kv_heads);
  const int64_t values =
      padded_dims(GLM_DTYPE_F8_E4M3, shape.head_dim) + kPartialExtra;
  ScratchLayout layout = {};
  layout.partials = int64_t{kMostShares} * kCounterStride * 4;
  layout.bytes = layout.partials + rows * values * 4;
  return layout;
}

int64_t most_splits(const ScratchShape& shape) {
  const int64_t splits =
      shape.num_segments * shape.num_kv_heads * shape.splits_of_context;
  return ceil_divide(splits * kShareSlack, kShareSlack - 1);
}

ScratchLayout scratch_layout(const ScratchShape& shape, int64_t num_blocks) {
  const int64_t splits_of_share = std::min(
      shape.splits_of_context, ceil_divide(most_splits(shape), num_blocks) + 2);
  ScratchLayout layout =
      layout_of_slots(shape, num_blocks * (splits_of_share + 1));
  layout.splits_of_share = splits_of_share;
  return layout;
}

Arguments arguments_of(const glm_attention_args& args) {
  const glm_kv_cache& cache = *args.cache;
  const glm_segments& segments = args.segments;
  Arguments result = {};
  result.pages = static_cast<const uint8_t*>(cache.data) +
                 page_offset(cache, args.layer, 0, 0);
  result.page_table = segments.page_table;
  result.page_table_stride = segments.page_table_stride;
  result.num_heads = args.num_heads;
  result.num_kv_heads = cache.num_kv_heads;
  result.group = args.num_heads / cache.num_kv_heads;
  result.head_dim = cache.head_dim;
  result.page_size = cache.page_size;
  result.scale = exponent_factor(args.scale);
  result.key_scale = scales_of_layer(cache.key_scale, cache, args.layer);
  result.value_scale = scales_of_layer(cache.value_scale, cache, args.layer);
  return result;
}

template <typename S>
void launch_segments(const Context& context, const Arguments& arguments,
                     int64_t num_blocks) {
  LaunchShape shape;
  shape.grid = dim3(static_cast<uint32_t>(num_blocks));
  shape.block = dim3(kThreads);
  shape.shared_bytes = static_cast<int64_t>(
      sizeof(Shared<S>) + arguments.num_segments * sizeof(Segment));
  launch("attention: decode", context.stream, shape, decode_attention_kernel<S>,
         arguments);
}

using Launcher = void (*)(const Context&, const Arguments&, int64_t);

template <int32_t halves>
using Bf16 = Shape<GLM_DTYPE_BF16, halves>;
template <int32_t halves>
using F8 = Shape<GLM_DTYPE_F8_E4M3, halves>;

constexpr Launcher kBf16Launchers[] = {
    launch_segments<Bf16<1>>, launch_segments<Bf16<2>>,
    launch_segments<Bf16<3>>, launch_segments<Bf16<4>>};
constexpr Launcher kF8Launchers[] = {launch_segments<F8<1>>,
                                     launch_segments<F8<2>>};

Launcher launcher_of(const glm_kv_cache& cache) {
  const int32_t index = num_halves(cache.dtype, cache.head_dim) - 1;
  return cache.dtype == GLM_DTYPE_BF16 ? kBf16Launchers[index]
                                       : kF8Launchers[index];
}

ScratchShape scratch_shape(const glm_attention_args& args) {
  const int64_t context = std::min<int64_t>(
      int64_t{args.segments.page_table_stride} * args.cache->page_size,
      INT32_MAX);
  ScratchShape shape = {};
  shape.blocks_of_context = counted_blocks(static_cast<int32_t>(context));
  shape.splits_of_context =
      ceil_divide(shape.blocks_of_context, split_blocks(args.cache->head_dim));
  shape.num_heads = args.num_heads;
  shape.num_kv_heads = args.cache->num_kv_heads;
  shape.head_dim = args.cache->head_dim;
  return shape;
}

int64_t blocks_of_grid(const Context& context, const ScratchShape& shape) {
  const int64_t wanted = shape.num_segments * shape.num_kv_heads *
                         ceil_divide(shape.blocks_of_context, kGridBlocks);
  return std::min<int64_t>(
      {wanted, context.num_multiprocessors, int64_t{kMostShares}});
}

ScratchLayout scratch_layout(const Context& context,
                             const ScratchShape& shape) {
  return scratch_layout(shape, blocks_of_grid(context, shape));
}

int32_t rows_at_once(const Context& context, ScratchShape shape,
                     const DecodeRows& rows) {
  const auto bytes_of = [&](int64_t count) {
    shape.num_segments = count;
    return scratch_layout(context, shape).bytes;
  };
  int32_t count = std::min(rows.count, kSegmentsOfLaunch);
  while (count > 1 && bytes_of(count) > context.scratch.bytes)
    count = (count + 1) / 2;
  if (bytes_of(count) > context.scratch.bytes)
    throw Failure(GLM_INVALID_ARGUMENT,
                  "attention: scratch: expected at least " +
                      std::to_string(bytes_of(count)) + " bytes, got " +
                      std::to_string(context.scratch.bytes));
  return count;
}

int64_t whole_shares(int64_t num_contexts, int64_t num_blocks) {
  if (num_contexts <= num_blocks)
    return num_blocks / num_contexts * num_contexts;
  return ceil_divide(num_contexts, ceil_divide(num_contexts, num_blocks));
}

void divide(const Context& context, const ScratchShape& shape,
            Arguments& arguments) {
  const int64_t num_blocks = blocks_of_grid(context, shape);
  const int64_t whole =
      whole_shares(shape.num_segments * shape.num_kv_heads, num_blocks);
  const bool is_even = whole * kShareSlack >= num_blocks * (kShareSlack - 1);
  arguments.num_shares = static_cast<int32_t>(is_even ? whole : num_blocks);
  arguments.inverse_shares = 1.0 / arguments.num_shares;
  arguments.inverse_segments = 1.0f / static_cast<float>(shape.num_segments);
}

void place_scratch(const Context& context, const ScratchShape& shape,
                   Arguments& arguments) {
  const ScratchLayout layout = scratch_layout(context, shape);
  auto* scratch = static_cast<uint8_t*>(context.scratch.data);
  arguments.splits_of_share = static_cast<int32_t>(layout.splits_of_share);
  arguments.counters = reinterpret_cast<uint32_t*>(scratch);
  arguments.partials = reinterpret_cast<float*>(scratch + layout.partials);
}

}

void decode_attention(const Context& context, const glm_attention_args& args,
                      const DecodeRows& rows) {
  const int64_t width = int64_t{args.num_heads} * args.cache->head_dim;
  ScratchShape shape = scratch_shape(args);
  const int32_t at_once = rows_at_once(context, shape, rows);
  Arguments arguments = arguments_of(args);
  arguments.waits_first = rows.waits_first;
  arguments.has_few_rows = rows.count <= kFewRows;
  for (int32_t begin = 0; begin < rows.count; begin += at_once) {
    arguments.num_segments = std::min(at_once, rows.count - begin);
    shape.num_segments = arguments.num_segments;
    arguments.query = static_cast<const __nv_bfloat16*>(args.query) +
                      (rows.first + begin) * width;
    arguments.output =
        static_cast<__nv_bfloat16*>(args.output) + (rows.first + begin) * width;
    arguments.context_length = rows.context_length + begin;
    arguments.table_row = rows.table_row + begin;
    divide(context, shape, arguments);
    place_scratch(context, shape, arguments);
    launcher_of (*args.cache)(context, arguments,
                              blocks_of_grid(context, shape));
  }
}

int64_t decode_attention_scratch_bytes(const glm_workspace_shape& shape) {
  ScratchShape most = {};
  most.num_segments = std::min<int64_t>(shape.max_sequences, kSegmentsOfLaunch);
  most.splits_of_context = num_splits(counted_blocks(shape.max_context),
                                      split_blocks(shape.head_dim)) +
                           1;
  most.num_heads = shape.num_heads;
  most.num_kv_heads = shape.num_kv_heads;
  most.head_dim = shape.head_dim;
  const int64_t num_slots =
      std::min(kMostShares * most.splits_of_context,
               most_splits(most) + 3 * int64_t{kMostShares}) +
      kMostShares;
  return layout_of_slots(most, num_slots).bytes;
}

}
