#include <algorithm>
#include <string>

#include "native/base/cuda.hpp"
#include "native/kernels/attention/decode_attention.hpp"
#include "native/kernels/attention/decode_combine.hpp"
#include "native/kernels/attention/decode_items.hpp"
#include "native/kernels/attention/decode_merge.hpp"
#include "native/kernels/attention/decode_products.hpp"
#include "native/kernels/attention/decode_start.hpp"
#include "native/kernels/attention/decode_stream.hpp"
#include "native/kernels/kv_cache.hpp"

namespace glm::kernels {
namespace {

using namespace decode;

constexpr int64_t kGridBarrierBytes = 256;
constexpr int32_t kFewRows = 16;
constexpr float kLog2E = 1.4426950408889634f;

template <typename S>
__device__ void stream_items(const Arguments& args, Shared<S>& shared,
                             int32_t num_items) {
  const int32_t stride = static_cast<int32_t>(gridDim.x);
  int32_t index = static_cast<int32_t>(blockIdx.x);
  Stream<S> stream = {args, shared, static_cast<int32_t>(threadIdx.x) % 32,
                      args.waits_first};
  if (index < num_items) {
    Item item = item_at(args, shared.segments, index);
    const uint8_t* source = stream.first_sources(item);
    for (index += stride; index < num_items; index += stride) {
      const Item next = item_at(args, shared.segments, index);
      const uint8_t* next_source = stream.first_sources(next);
      stream.send_item(item, source);
      item = next;
      source = next_source;
    }
    stream.send_item(item, source);
  }
  stream.wait();
}

template <typename S>
__device__ void attend_items(const Arguments& args, Shared<S>& shared,
                             int32_t num_items) {
  const int32_t thread = static_cast<int32_t>(threadIdx.x);
  const int32_t stride = static_cast<int32_t>(gridDim.x);
  Consumer<S> consumer = {args, shared, thread / 32};
  consumer.ring.slot = thread / 32;
  Cursor<1> merges;
  for (int32_t index = static_cast<int32_t>(blockIdx.x); index < num_items;
       index += stride) {
    const Item item = item_at(args, shared.segments, index);
    const int32_t first_warp = consumer.first_warp;
    const uint32_t parity = merges.parity;
    State<S> state;
    consumer.attend(item, state);
    hand_over<S>(shared, state, merges);
    if (index + stride >= num_items)
      merge_last<S>(args, shared, item, first_warp, thread, parity);
  }
}

template <typename S>
__device__ void merge_items(const Arguments& args, Shared<S>& shared,
                            int32_t num_items) {
  const int32_t thread =
      static_cast<int32_t>(threadIdx.x) - S::kFirstMergeThread;
  const int32_t stride = static_cast<int32_t>(gridDim.x);
  Cursor<1> merges;
  Cursor<S::kWarps> first_warp;
  for (int32_t index = static_cast<int32_t>(blockIdx.x); index < num_items;
       index += stride) {
    const Item item = item_at(args, shared.segments, index);
    if (index + stride >= num_items)
      return merge_last<S>(args, shared, item, first_warp.slot,
                           S::kWarps * 32 + thread, merges.parity);
    ptx::barrier_wait(&shared.merge_full, merges.parity);
    merge_item<S>(args, shared, item, first_warp.slot, thread, kMergeThreads);
    ptx::warp_arrive(&shared.merge_empty);
    merges.advance(1);
    first_warp.advance(item.num_blocks());
  }
}

template <typename S>
__global__ __launch_bounds__(S::kThreads,
                             1) void decode_attention_kernel(Arguments args) {
  extern __shared__ __align__(1024) uint8_t memory[];
  auto& shared = *reinterpret_cast<Shared<S>*>(memory);
  if (args.has_few_rows) ptx::let_successor_start();
  if (args.waits_first) ptx::wait_for_predecessor();
  prepare<S>(args, shared);
  const int32_t num_items =
      shared.segments[args.num_segments].first_chunk * args.num_kv_heads;
  const int32_t warp = static_cast<int32_t>(threadIdx.x) / 32;
  if (warp == S::kWarps) {
    stream_items<S>(args, shared, num_items);
  } else {
    ptx::wait_for_predecessor();
    if (!args.has_few_rows) ptx::let_successor_start();
    if (warp < S::kWarps)
      attend_items<S>(args, shared, num_items);
    else
      merge_items<S>(args, shared, num_items);
  }
  combine_chunks<S>(args, shared);
}

constexpr int32_t padded_dims(int32_t dtype, int32_t head_dim) {
  return num_halves(dtype, head_dim) * kHalfBytes / dtype_bytes(dtype);
}

struct ScratchLayout {
  int64_t weights;
  int64_t sums;
  int64_t bytes;
};

ScratchLayout scratch_layout(int64_t num_segments, int64_t chunks_of_segment,
                             int64_t num_heads, int32_t head_dim) {
  const int64_t rows = num_segments * chunks_of_segment * num_heads;
  const int64_t dims = padded_dims(GLM_DTYPE_F8_E4M3, head_dim);
  ScratchLayout layout;
  layout.weights = kGridBarrierBytes;
  layout.sums = layout.weights + round_up(rows * 8, 256);
  layout.bytes = layout.sums + rows * dims * 4;
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
  result.scale = args.scale * kLog2E;
  result.key_scale = scales_of_layer(cache.key_scale, cache, args.layer);
  result.value_scale = scales_of_layer(cache.value_scale, cache, args.layer);
  return result;
}

template <typename S>
void launch_segments(const Context& context, const Arguments& arguments,
                     int64_t max_items) {
  LaunchShape shape;
  shape.grid = dim3(static_cast<uint32_t>(
      std::min<int64_t>(max_items, context.num_multiprocessors)));
  shape.block = dim3(S::kThreads);
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

int32_t most_chunks(const glm_attention_args& args) {
  const int64_t context =
      int64_t{args.segments.page_table_stride} * args.cache->page_size;
  return num_chunks(
      static_cast<int32_t>(std::min<int64_t>(context, INT32_MAX)));
}

int32_t rows_at_once(const Context& context, const glm_attention_args& args,
                     int32_t chunks, const DecodeRows& rows) {
  const auto bytes_of = [&](int64_t count) {
    return scratch_layout(count, chunks, args.num_heads, args.cache->head_dim)
        .bytes;
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

void place_scratch(const Context& context, const glm_attention_args& args,
                   int32_t chunks, Arguments& arguments) {
  const ScratchLayout layout = scratch_layout(
      arguments.num_segments, chunks, args.num_heads, args.cache->head_dim);
  auto* scratch = static_cast<uint8_t*>(context.scratch.data);
  arguments.grid_barrier = reinterpret_cast<uint32_t*>(scratch);
  arguments.weights = reinterpret_cast<float2*>(scratch + layout.weights);
  arguments.sums = reinterpret_cast<float*>(scratch + layout.sums);
}

}

void decode_attention(const Context& context, const glm_attention_args& args,
                      const DecodeRows& rows) {
  const glm_kv_cache& cache = *args.cache;
  const int64_t width = int64_t{args.num_heads} * cache.head_dim;
  const int32_t chunks = most_chunks(args);
  const int32_t at_once = rows_at_once(context, args, chunks, rows);
  Arguments arguments = arguments_of(args);
  arguments.waits_first = rows.waits_first;
  arguments.has_few_rows = rows.count <= kFewRows;
  for (int32_t begin = 0; begin < rows.count; begin += at_once) {
    arguments.num_segments = std::min(at_once, rows.count - begin);
    arguments.query = static_cast<const __nv_bfloat16*>(args.query) +
                      (rows.first + begin) * width;
    arguments.output =
        static_cast<__nv_bfloat16*>(args.output) + (rows.first + begin) * width;
    arguments.context_length = rows.context_length + begin;
    arguments.table_row = rows.table_row + begin;
    place_scratch(context, args, chunks, arguments);
    launcher_of(cache)(
        context, arguments,
        int64_t{arguments.num_segments} * chunks * cache.num_kv_heads);
  }
}

int64_t decode_attention_scratch_bytes(const glm_workspace_shape& shape) {
  const int64_t segments =
      std::min<int64_t>(shape.max_sequences, kSegmentsOfLaunch);
  return scratch_layout(segments, num_chunks(shape.max_context) + 1,
                        shape.num_heads, shape.head_dim)
      .bytes;
}

}
