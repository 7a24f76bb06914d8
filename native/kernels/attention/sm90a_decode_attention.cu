#include <algorithm>
#include <string>

#include "native/base/cuda.hpp"
#include "native/kernels/attention/decode_attention.hpp"
#include "native/kernels/attention/decode_combine.hpp"
#include "native/kernels/attention/decode_items.hpp"
#include "native/kernels/attention/decode_merge.hpp"
#include "native/kernels/attention/decode_products.hpp"
#include "native/kernels/attention/decode_share.hpp"
#include "native/kernels/attention/decode_start.hpp"
#include "native/kernels/attention/decode_stream.hpp"
#include "native/kernels/kv_cache.hpp"
#include "native/ptx/approximate.hpp"

namespace glm::kernels {
namespace {

using namespace decode;

constexpr int32_t kFewRows = 16;

template <typename S>
__device__ Progress stream_items(const Arguments& args, Shared<S>& shared) {
  Stream<S> stream = {args, shared, static_cast<int32_t>(threadIdx.x) % 32,
                      args.waits_first};
  Walk<S> walk(args, shared);
  Progress progress;
  Item next = walk.take_or_nothing();
  int32_t next_page = stream.page_of_lane(next, 0);
  while (next.has_splits()) {
    const Item item = next;
    const int32_t page = next_page;
    next = walk.take_or_nothing();
    next_page = stream.page_of_lane(next, 0);
    stream.send_item(item, page);
    progress.num_splits +=
        (item.end_split - item.first_split) * rows_of<S>(item);
    progress.num_parts += num_parts<S>(item.num_blocks());
  }
  stream.wait();
  return progress;
}

template <typename S>
__device__ Progress attend_items(const Arguments& args, Shared<S>& shared) {
  Consumer<S> consumer = {args, shared};
  consumer.ring.slot = static_cast<int32_t>(threadIdx.x) / 32 * S::kStepBlocks;
  Progress progress;
  for (Walk<S> walk(args, shared); !walk.is_done();) {
    const Item item = walk.take();
    const float scale = args.scale * scale_of<S>(args.key_scale, item.kv_head);
    uint32_t query[S::kSteps][4];
    consumer.wait_for_query();
    consumer.load_query(0, query);
    if (rows_of<S>(item) == 1) consumer.leave_query();
#pragma unroll 1
    for (int32_t split = item.first_split; split < item.end_split; ++split) {
      const int32_t rest = item.context_length - split * kSplitTokens;
#pragma unroll 1
      for (int32_t back = 0; back < rows_of<S>(item); ++back) {
        const bool is_last_row = back + 1 == rows_of<S>(item);
        if (rows_of<S>(item) > 1) consumer.load_query(back, query);
        State<S> state;
        consumer.attend(query, scale, rest, back, is_last_row,
                        progress.num_parts, state);
        hand_over<S>(shared, state, args.group, progress.num_splits);
        ++progress.num_splits;
      }
      progress.num_parts += num_parts<S>(item.blocks_of(split));
    }
    if (rows_of<S>(item) > 1) consumer.leave_query();
  }
  ptx::warp_arrive(&shared.last_full);
  return progress;
}

template <typename S>
__device__ Progress merge_items(const Arguments& args, Shared<S>& shared) {
  const int32_t warp =
      (static_cast<int32_t>(threadIdx.x) - S::kFirstMergeThread) / 32;
  Progress progress;
  for (Walk<S> walk(args, shared); !walk.is_done();) {
    const Item item = walk.take();
#pragma unroll 1
    for (int32_t split = item.first_split; split < item.end_split; ++split) {
#pragma unroll 1
      for (int32_t back = 0; back < rows_of<S>(item); ++back) {
        const bool is_last_row = back + 1 == rows_of<S>(item);
        if (!walk.is_done() || !item.is_last(split) || !is_last_row) {
          const auto merged = Split::of<S>(args, item, split, back);
          ptx::barrier_wait(&shared.merge_full, progress.num_splits & 1);
          merge_split<S>(args, shared, merged, progress.num_parts, warp,
                         kMergeThreads / 32);
          ptx::warp_arrive(&shared.merge_empty);
        }
        ++progress.num_splits;
      }
      progress.num_parts += num_parts<S>(item.blocks_of(split));
    }
  }
  return progress;
}

template <typename S>
__device__ void merge_last(const Arguments& args, Shared<S>& shared,
                           const Progress& progress) {
  if (progress.num_splits == 0) return;
  const Item item = last_item(args, shared);
  const int32_t split = item.end_split - 1;
  const int32_t parts_before =
      progress.num_parts - num_parts<S>(item.blocks_of(split));
  const auto merged = Split::of<S>(args, item, split, rows_of<S>(item) - 1);
  ptx::barrier_wait(&shared.last_full, 0);
  merge_split<S>(args, shared, merged, parts_before,
                 static_cast<int32_t>(threadIdx.x) / 32, S::kThreads / 32);
}

template <typename S>
__global__ __launch_bounds__(S::kThreads,
                             1) void decode_attention_kernel(Arguments args) {
  extern __shared__ __align__(1024) uint8_t memory[];
  auto& shared = *reinterpret_cast<Shared<S>*>(memory);
  if (args.has_few_rows) ptx::let_successor_start();
  if (args.waits_first) ptx::wait_for_predecessor();
  prepare<S>(args, shared);
  const int32_t warp = static_cast<int32_t>(threadIdx.x) / 32;
  Progress progress;
  if (warp == S::kWarps) {
    progress = stream_items<S>(args, shared);
    list_open_contexts<S>(args, shared);
  } else {
    ptx::wait_for_predecessor();
    if (!args.has_few_rows) ptx::let_successor_start();
    progress = warp < S::kWarps ? attend_items<S>(args, shared)
                                : merge_items<S>(args, shared);
  }
  merge_last<S>(args, shared, progress);
  combine_contexts<S>(args, shared);
}

ScratchLayout scratch_layout(const ScratchShape& shape, int64_t num_blocks) {
  const int64_t splits_of_share = std::min(
      shape.splits_of_context, ceil_divide(most_splits(shape), num_blocks) + 2);
  ScratchLayout layout =
      layout_of_slots(shape, num_blocks * (splits_of_share + 1));
  layout.slots_of_share = splits_of_share + 1;
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
  result.rows_per_sequence = segments.rows_per_sequence;
  result.scale = args.scale * ptx::kLog2E;
  result.key_scale = scales_of_layer(cache.key_scale, cache, args.layer);
  result.value_scale = scales_of_layer(cache.value_scale, cache, args.layer);
  return result;
}

template <typename S>
void launch_segments(const Context& context, const Arguments& arguments,
                     int64_t num_blocks) {
  LaunchShape shape;
  shape.grid = dim3(static_cast<uint32_t>(num_blocks));
  shape.block = dim3(S::kThreads);
  shape.shared_bytes = static_cast<int64_t>(
      sizeof(Shared<S>) + arguments.num_segments * sizeof(Segment));
  launch("attention: decode", context.stream, shape, decode_attention_kernel<S>,
         arguments);
}

using Launcher = void (*)(const Context&, const Arguments&, int64_t);

template <int32_t halves, int32_t rows_at_once = 1>
using Bf16 = Shape<GLM_DTYPE_BF16, halves, rows_at_once>;
template <int32_t halves>
using F8 = Shape<GLM_DTYPE_F8_E4M3, halves>;

constexpr Launcher kBf16Launchers[] = {
    launch_segments<Bf16<1>>, launch_segments<Bf16<2>>,
    launch_segments<Bf16<3>>, launch_segments<Bf16<4>>};
constexpr Launcher kF8Launchers[] = {launch_segments<F8<1>>,
                                     launch_segments<F8<2>>};
constexpr Launcher kBf16PairLaunchers[] = {launch_segments<Bf16<1, 2>>,
                                           launch_segments<Bf16<2, 2>>};

constexpr int32_t kMostDimsOfPair = 128;

bool may_read_pairs(const glm_kv_cache& cache, const Arguments& arguments) {
  return arguments.rows_per_sequence > 1 && cache.dtype == GLM_DTYPE_BF16 &&
         arguments.group <= kMostHeadsOfPair &&
         arguments.head_dim <= kMostDimsOfPair &&
         arguments.num_segments * arguments.num_kv_heads > arguments.num_shares;
}

Launcher launcher_of(const glm_kv_cache& cache, const Arguments& arguments) {
  const int32_t index = num_halves(cache.dtype, cache.head_dim) - 1;
  if (may_read_pairs(cache, arguments)) return kBf16PairLaunchers[index];
  return cache.dtype == GLM_DTYPE_BF16 ? kBf16Launchers[index]
                                       : kF8Launchers[index];
}

ScratchShape scratch_shape(const glm_attention_args& args) {
  const int64_t context = std::min<int64_t>(
      int64_t{args.segments.page_table_stride} * args.cache->page_size,
      INT32_MAX);
  ScratchShape shape = {};
  shape.splits_of_context =
      num_splits(counted_blocks(static_cast<int32_t>(context)));
  shape.num_heads = args.num_heads;
  shape.num_kv_heads = args.cache->num_kv_heads;
  shape.head_dim = args.cache->head_dim;
  return shape;
}

int64_t blocks_of_grid(const Context& context, const ScratchShape& shape) {
  const int64_t splits =
      shape.num_segments * shape.num_kv_heads * shape.splits_of_context;
  const int64_t blocks =
      std::min<int64_t>(context.num_multiprocessors, kMostShares);
  return std::min(splits, blocks);
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

ScratchLayout layout_for_pairs(const Context& context,
                               const ScratchShape& shape,
                               const ScratchLayout& least) {
  const int64_t num_blocks = blocks_of_grid(context, shape);
  const int64_t slots_of_share =
      std::min(2 * shape.splits_of_context + 2,
               slots_that_fit(shape, context.scratch.bytes) / num_blocks);
  if (slots_of_share <= least.slots_of_share) return least;
  ScratchLayout layout = layout_of_slots(shape, num_blocks * slots_of_share);
  layout.slots_of_share = slots_of_share;
  return layout;
}

void place_scratch(const Context& context, const ScratchShape& shape,
                   bool in_pairs, Arguments& arguments) {
  ScratchLayout layout = scratch_layout(context, shape);
  if (in_pairs) layout = layout_for_pairs(context, shape, layout);
  auto* scratch = static_cast<uint8_t*>(context.scratch.data);
  arguments.slots_of_share = static_cast<int32_t>(layout.slots_of_share);
  arguments.counters = reinterpret_cast<uint32_t*>(scratch);
  arguments.weights = reinterpret_cast<float2*>(scratch + layout.weights);
  arguments.sums = reinterpret_cast<float*>(scratch + layout.sums);
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
    place_scratch(context, shape, may_read_pairs(*args.cache, arguments),
                  arguments);
    launcher_of(*args.cache, arguments)(context, arguments,
                                        blocks_of_grid(context, shape));
  }
}

}
