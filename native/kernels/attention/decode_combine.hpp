#ifndef GLM_KERNELS_ATTENTION_DECODE_COMBINE_HPP
#define GLM_KERNELS_ATTENTION_DECODE_COMBINE_HPP

#include "native/kernels/attention/decode_items.hpp"
#include "native/kernels/attention/decode_partials.hpp"
#include "native/kernels/attention/decode_share.hpp"
#include "native/kernels/attention/split_softmax.hpp"
#include "native/ptx/arrival_count.hpp"
#include "native/ptx/bulk_copy.hpp"

namespace glm::kernels::decode {

template <typename S>
__device__ bool has_open_context(const Shared<S>& shared) {
  return shared.ends[0].split > 0 || shared.ends[1].split > 0;
}

template <typename S>
__device__ int32_t slot_of_partial(const Arguments& args,
                                   const Shared<S>& shared,
                                   const OpenContext& open, int32_t partial) {
  if (partial == 0) return slot_of_fold(args, open.first_share);
  const Item& item = open.item;
  const int32_t split = open.splits_of_fold + partial - 1;
  const int32_t share = shares_of_context(args, shared, item).share_of(split);
  const int32_t first_split =
      nearest_split(division_of(args, shared).begin_of(share, item.kv_head) -
                        begin_of_segment(shared, item.segment),
                    S::kSplitBlocks);
  return slot_of_split(args, share, split - first_split);
}

struct Folded {
  float4 sums = {};
  float total = 0.0f;
  float top = -INFINITY;

  __device__ __forceinline__ void add(float of_other, const float4& next,
                                      float next_total) {
    const bool grows = signbit(of_other);
    add({0.0f, grows ? -of_other : 1.0f, grows ? 1.0f : of_other}, next,
        next_total);
  }

  __device__ __forceinline__ void add(const Fold& fold, const float4& next,
                                      float next_total) {
    sums = make_float4(fold(sums.x, next.x), fold(sums.y, next.y),
                       fold(sums.z, next.z), fold(sums.w, next.w));
    total = fold(total, next_total);
  }
};

__device__ inline float highest_so_far(float highest, float before) {
  const int32_t lane = static_cast<int32_t>(threadIdx.x) % 32;
  highest = lane == 0 ? fmaxf(before, highest) : highest;
  for (int32_t step = 1; step < 32; step *= 2) {
    const float other = __shfl_up_sync(~0u, highest, step);
    if (lane >= step) highest = fmaxf(highest, other);
  }
  return highest;
}

__device__ inline float weigh_partials(float top, float before, float factor,
                                       float& highest) {
  const int32_t lane = static_cast<int32_t>(threadIdx.x) % 32;
  const float so_far = highest_so_far(top, before);
  const float previous = __shfl_up_sync(~0u, so_far, 1);
  const float own_before = lane == 0 ? before : previous;
  const Fold fold = fold_of(own_before, top, factor);
  highest = __shfl_sync(~0u, so_far, 31);
  return top > own_before ? -fold.of_before : fold.of_next;
}

template <typename S>
struct Combiner {
  static constexpr int32_t kQuads = (S::kDims + 127) / 128;
  static constexpr int32_t kWarpUnits =
      (kGroupRows * kQuads + kThreads / 32 - 1) / (kThreads / 32);

  const Arguments& args;
  Shared<S>& shared;
  uint32_t parities = 0;
  int32_t warp = static_cast<int32_t>(threadIdx.x) / 32;
  int32_t lane = static_cast<int32_t>(threadIdx.x) % 32;

  __device__ int32_t partial_bytes() const {
    return args.group * S::kPartialStride * static_cast<int32_t>(sizeof(float));
  }

  __device__ int32_t partials_at_once() const {
    return min(S::kBufferBytes / kPartialBuffers / partial_bytes(), 32);
  }

  __device__ float* partial(int32_t buffer, int32_t number) const {
    return reinterpret_cast<float*>(&shared.ring[0][0][0] +
                                    (buffer * partials_at_once() + number) *
                                        partial_bytes());
  }

  __device__ void request(const OpenContext& open, int32_t begin,
                          int32_t buffer) const {
    const int32_t count = min(partials_at_once(), open.num_partials - begin);
    if (warp > 0 || count <= 0) return;
    uint64_t* full = &shared.partials_full[buffer];
    ptx::proxy_fence_of_all_memory();
    if (lane == 0) ptx::barrier_expect(full, count * partial_bytes());
    __syncwarp();
    if (lane >= count) return;
    const int32_t number = begin + lane;
    const int32_t slot = number < kListedSlots
                             ? open.slots[number]
                             : slot_of_partial(args, shared, open, number);
    ptx::bulk_copy(partial(buffer, lane),
                   args.partials + slot * partial_values<S>(args),
                   partial_bytes(), full);
  }

  __device__ void fold(int32_t unit, int32_t buffer, int32_t count,
                       float factor, Folded& folded) const {
    const int32_t row = unit / kQuads;
    const int32_t dim = min(unit % kQuads * 128 + lane * 4, S::kDims - 4);
    const float* first = partial(buffer, 0) + row * S::kPartialStride;
    const int32_t stride = args.group * S::kPartialStride;
    const float* own = first + min(lane, count - 1) * stride + S::kDims;
    const float of_other =
        weigh_partials(own[kTopPlace], folded.top, factor, folded.top);
    const float* values = first + dim;
    const float* totals = first + S::kDims + lane % 4;
#pragma unroll 4
    for (int32_t i = 0; i < count; ++i)
      folded.add(__shfl_sync(~0u, of_other, i),
                 *reinterpret_cast<const float4*>(values + i * stride),
                 totals[i * stride]);
  }

  __device__ void store(const Item& item, int32_t unit,
                        const Folded& folded) const {
    const float scale = scale_of<S>(args.value_scale, item.kv_head);
    const float inverse = output_factor(quad_sum(folded.total), scale);
    const int32_t dim = unit % kQuads * 128 + lane * 4;
    if (dim >= S::kDims) return;
    const float4& sums = folded.sums;
    const int32_t row = unit / kQuads;
    store_pair(args, item, row, dim, make_float2(sums.x, sums.y), inverse);
    store_pair(args, item, row, dim + 2, make_float2(sums.z, sums.w), inverse);
  }

  __device__ void combine(const OpenContext& open) {
    const float factor =
        args.scale * scale_of<S>(args.key_scale, open.item.kv_head);
    const int32_t at_once = partials_at_once();
    Folded folded[kWarpUnits];
    for (int32_t i = 0; i < kPartialBuffers; ++i) request(open, i * at_once, i);
    int32_t buffer = 0;
    for (int32_t begin = 0; begin < open.num_partials; begin += at_once) {
      const int32_t count = min(at_once, open.num_partials - begin);
      ptx::barrier_wait(&shared.partials_full[buffer], parities >> buffer & 1);
      parities ^= 1u << buffer;
#pragma unroll
      for (int32_t i = 0; i < kWarpUnits; ++i) {
        const int32_t unit = warp + i * (kThreads / 32);
        if (unit < args.group * kQuads)
          fold(unit, buffer, count, factor, folded[i]);
      }
      __syncthreads();
      request(open, begin + kPartialBuffers * at_once, buffer);
      buffer ^= 1;
    }
#pragma unroll
    for (int32_t i = 0; i < kWarpUnits; ++i) {
      const int32_t unit = warp + i * (kThreads / 32);
      if (unit < args.group * kQuads) store(open.item, unit, folded[i]);
    }
  }
};

template <typename S>
__device__ bool take_open(const Arguments& args, const Shared<S>& shared,
                          int32_t number, Item& item) {
  Walk<S> walk(args, shared);
  const bool is_one_context = walk.at.segment == walk.end.segment &&
                              walk.at.kv_head == walk.end.kv_head;
  if (walk.is_done() || (number == 1 && is_one_context)) return false;
  if (number == 1) walk.at = {walk.end.segment, walk.end.kv_head, 0};
  if (number == 1 && walk.is_done()) return false;
  item = walk.take();
  return !item.is_whole();
}

template <typename S>
__device__ void list_open_context(const Arguments& args, Shared<S>& shared,
                                  int32_t number) {
  const int32_t lane = static_cast<int32_t>(threadIdx.x) % 32;
  OpenContext& open = shared.open[number];
  Item item;
  const bool is_open = take_open(args, shared, number, item);
  if (lane == 0) open.is_open = is_open;
  if (!is_open) return;
  const SharesOfContext<S> shares = shares_of_context(args, shared, item);
  const int32_t first_share = shares.share_of(0);
  const int32_t end_of_fold =
      division_of(args, shared).begin_of(first_share + 1, item.kv_head) -
      begin_of_segment(shared, item.segment);
  if (lane == 0) {
    open.item = item;
    open.first_share = first_share;
    open.splits_of_fold =
        min(nearest_split(end_of_fold, S::kSplitBlocks), item.num_splits);
    open.num_partials = 1 + item.num_splits - open.splits_of_fold;
  }
  __syncwarp();
  for (int32_t i = lane; i < kListedSlots; i += 32)
    open.slots[i] = slot_of_partial(args, shared, open, i);
}

template <typename S>
__device__ void list_open_contexts(const Arguments& args, Shared<S>& shared) {
  if (!has_open_context(shared)) return;
  for (int32_t number = 0; number < kOpenContexts; ++number)
    list_open_context(args, shared, number);
}

__device__ inline bool is_last_to_arrive(const Arguments& args,
                                         const OpenContext& open) {
  if (!open.is_open) return false;
  uint32_t* counter = args.counters + open.first_share * kCounterStride;
  const uint32_t own = open.item.end_split - open.item.first_split;
  const uint32_t before = ptx::add_release_acquire(counter, own);
  if (before + own != static_cast<uint32_t>(open.item.num_splits)) return false;
  *counter = 0;
  return true;
}

template <typename S>
__device__ void combine_contexts(const Arguments& args, Shared<S>& shared) {
  if (!has_open_context(shared)) return;
  __syncthreads();
  if (threadIdx.x < kOpenContexts) {
    OpenContext& open = shared.open[threadIdx.x];
    open.is_combined_here = is_last_to_arrive(args, open);
  }
  __syncthreads();
  Combiner<S> combiner = {args, shared};
#pragma unroll 1
  for (int32_t number = 0; number < kOpenContexts; ++number) {
    const OpenContext& open = shared.open[number];
    if (open.is_combined_here) combiner.combine(open);
  }
}

}

#endif
