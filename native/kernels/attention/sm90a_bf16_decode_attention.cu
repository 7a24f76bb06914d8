#include <algorithm>
#include <string>

#include "native/base/cuda.hpp"
#include "native/kernels/attention/decode_attention.hpp"
#include "native/kernels/attention/decode_combine.hpp"
#include "native/kernels/attention/decode_items.hpp"
#include "native/kernels/attention/decode_merge.hpp"
#include "native/kernels/attention/decode_products.hpp"
#include "native/kernels/attention/decode_stream.hpp"

namespace glm::kernels {
namespace {

using namespace decode;

constexpr int64_t kGridBarrierBytes = 256;
constexpr float kLog2E = 1.4426950408889634f;

template <int32_t halves>
__device__ void prepare(const Arguments& args, Shared<halves>& shared) {
  using S = Shape<halves>;
  auto* query = reinterpret_cast<uint32_t*>(shared.query);
  for (uint32_t i = threadIdx.x; i < sizeof shared.query / 4; i += S::kThreads)
    query[i] = 0;
  ptx::proxy_fence();
  if (threadIdx.x == 0) {
    for (int32_t i = 0; i < S::kStages; ++i) {
      ptx::barrier_init(&shared.full[i], 1);
      ptx::barrier_init(&shared.empty[i], 1);
    }
    for (int32_t i = 0; i < kQueryBuffers; ++i) {
      ptx::barrier_init(&shared.query_full[i], 1);
      ptx::barrier_init(&shared.query_empty[i], S::kWarps);
    }
    ptx::barrier_init(&shared.merge_full, S::kWarps);
    ptx::barrier_init(&shared.merge_empty, kMergeThreads / 32);
    ptx::barrier_init_fence();
  }
  if (threadIdx.x / 32 == S::kWarps) list_segments(args, shared.segments);
  __syncthreads();
}

template <int32_t halves>
__device__ void stream_items(const Arguments& args, Shared<halves>& shared,
                             int32_t num_items) {
  const int32_t stride = static_cast<int32_t>(gridDim.x);
  int32_t index = static_cast<int32_t>(blockIdx.x);
  Stream<halves> stream = {args, shared,
                           static_cast<int32_t>(threadIdx.x) % 32};
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

template <int32_t halves>
__device__ void attend_items(const Arguments& args, Shared<halves>& shared,
                             int32_t num_items) {
  const int32_t thread = static_cast<int32_t>(threadIdx.x);
  Consumer<halves> consumer = {args, shared, thread / 32, thread % 32 == 0};
  Cursor<1> merges;
  for (int32_t index = static_cast<int32_t>(blockIdx.x); index < num_items;
       index += static_cast<int32_t>(gridDim.x)) {
    State<halves> state;
    consumer.attend(item_at(args, shared.segments, index), state);
    hand_over<halves>(shared, state, merges);
  }
}

template <int32_t halves>
__device__ void merge_items(const Arguments& args, Shared<halves>& shared,
                            int32_t num_items) {
  Cursor<1> merges;
  for (int32_t index = static_cast<int32_t>(blockIdx.x); index < num_items;
       index += static_cast<int32_t>(gridDim.x))
    merge_item<halves>(args, shared, item_at(args, shared.segments, index),
                       merges);
}

template <int32_t halves>
__global__ __launch_bounds__(Shape<halves>::kThreads,
                             1) void decode_attention_kernel(Arguments args) {
  extern __shared__ __align__(1024) uint8_t memory[];
  auto& shared = *reinterpret_cast<Shared<halves>*>(memory);
  prepare<halves>(args, shared);
  const int32_t num_items =
      shared.segments[args.num_segments].first_chunk * args.num_kv_heads;
  const int32_t warp = static_cast<int32_t>(threadIdx.x) / 32;
  if (warp == Shape<halves>::kWarps) {
    stream_items<halves>(args, shared, num_items);
  } else {
    ptx::wait_for_predecessor();
    ptx::let_successor_start();
    if (warp < Shape<halves>::kWarps)
      attend_items<halves>(args, shared, num_items);
    else
      merge_items<halves>(args, shared, num_items);
  }
  combine_chunks<halves>(args, shared);
}

struct ScratchLayout {
  int64_t weights;
  int64_t sums;
  int64_t bytes;
};

ScratchLayout scratch_layout(int64_t num_segments, int64_t chunks_of_segment,
                             int64_t num_heads, int64_t num_kv_heads,
                             int32_t head_dim) {
  const int64_t rows = num_segments * chunks_of_segment * num_heads;
  const int64_t dims = num_halves(GLM_DTYPE_BF16, head_dim) * kHalfDims;
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
  result.query = static_cast<const __nv_bfloat16*>(args.query);
  result.output = static_cast<__nv_bfloat16*>(args.output);
  result.pages = static_cast<const uint8_t*>(cache.data) +
                 page_offset(cache, args.layer, 0, 0);
  result.context_length = segments.context_length;
  result.table_row = segments.table_row;
  result.page_table = segments.page_table;
  result.page_table_stride = segments.page_table_stride;
  result.num_heads = args.num_heads;
  result.num_kv_heads = cache.num_kv_heads;
  result.group = args.num_heads / cache.num_kv_heads;
  result.head_dim = cache.head_dim;
  result.page_size = cache.page_size;
  result.scale = args.scale * kLog2E;
  return result;
}

template <int32_t halves>
void launch_segments(const Context& context, const Arguments& arguments,
                     int64_t max_items) {
  LaunchShape shape;
  shape.grid = dim3(static_cast<uint32_t>(
      std::min<int64_t>(max_items, context.num_multiprocessors)));
  shape.block = dim3(Shape<halves>::kThreads);
  shape.shared_bytes = static_cast<int64_t>(
      sizeof(Shared<halves>) + arguments.num_segments * sizeof(Segment));
  launch("attention: decode", context.stream, shape,
         decode_attention_kernel<halves>, arguments);
}

using Launcher = void (*)(const Context&, const Arguments&, int64_t);

constexpr Launcher kLaunchers[] = {launch_segments<1>, launch_segments<2>,
                                   launch_segments<3>, launch_segments<4>};

int32_t most_chunks(const glm_attention_args& args) {
  const int64_t context =
      int64_t{args.segments.page_table_stride} * args.cache->page_size;
  return num_chunks(
      static_cast<int32_t>(std::min<int64_t>(context, INT32_MAX)));
}

}

void decode_attention(const Context& context, const glm_attention_args& args) {
  const glm_kv_cache& cache = *args.cache;
  Arguments arguments = arguments_of(args);
  const int32_t count = args.segments.num_decode_segments;
  const int32_t chunks = most_chunks(args);
  for (int32_t begin = 0; begin < count; begin += kSegmentsOfLaunch) {
    arguments.num_segments = std::min(kSegmentsOfLaunch, count - begin);
    const ScratchLayout layout =
        scratch_layout(arguments.num_segments, chunks, args.num_heads,
                       cache.num_kv_heads, cache.head_dim);
    if (layout.bytes > context.scratch.bytes)
      throw Failure(GLM_INVALID_ARGUMENT,
                    "attention: scratch: expected at least " +
                        std::to_string(layout.bytes) + " bytes, got " +
                        std::to_string(context.scratch.bytes));
    auto* scratch = static_cast<uint8_t*>(context.scratch.data);
    arguments.grid_barrier = reinterpret_cast<uint32_t*>(scratch);
    arguments.weights = reinterpret_cast<float2*>(scratch + layout.weights);
    arguments.sums = reinterpret_cast<float*>(scratch + layout.sums);
    const int64_t max_items =
        int64_t{arguments.num_segments} * chunks * cache.num_kv_heads;
    kLaunchers[num_halves(cache.dtype, cache.head_dim) - 1](context, arguments,
                                                            max_items);
    const int64_t width = int64_t{args.num_heads} * cache.head_dim;
    arguments.query += arguments.num_segments * width;
    arguments.output += arguments.num_segments * width;
    arguments.context_length += arguments.num_segments;
    arguments.table_row += arguments.num_segments;
  }
}

int64_t decode_attention_scratch_bytes(const glm_workspace_shape& shape) {
  const int64_t segments =
      std::min<int64_t>(shape.max_sequences, kSegmentsOfLaunch);
  return scratch_layout(segments, num_chunks(shape.max_context) + 1,
                        shape.num_heads, shape.num_kv_heads, shape.head_dim)
      .bytes;
}

}
