#pragma once

#include "native/kernels/attention/decode_fold.hpp"
#include "native/kernels/attention/decode_items.hpp"
#include "native/kernels/attention/decode_merge.hpp"
#include "native/kernels/attention/decode_share.hpp"
#include "native/ptx/arrival_count.hpp"

namespace glm::kernels::decode {

constexpr int32_t kPartialsAtOnce = 16;

template <typename S>
__device__ bool has_open_context(const Shared<S>& shared) {
  return shared.ends[0].split > 0 || shared.ends[1].split > 0;
}

template <typename S>
__device__ int32_t slot_of_partial(const Arguments& args,
                                   const Shared<S>& shared,
                                   const OpenContext& open, int32_t partial) {
  if (partial == 0) return slot_of_fold(args, open.first_share, 0);
  const Item& item = open.item;
  const int32_t split = open.splits_of_fold + partial - 1;
  const int32_t share = shares_of_context(args, shared, item).share_of(split);
  const int32_t first_split =
      nearest_split(division_of(args, shared).begin_of(share, item.kv_head) -
                    begin_of_segment(shared, item.segment));
  return slot_of_split(args, share, (split - first_split) * rows_of<S>(item));
}

struct LanePartial {
  int64_t place;
  float2 weight;
  float of_before;
  float of_own;
  float highest;
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

template <typename S>
__device__ LanePartial lane_partial(const Arguments& args,
                                    const Shared<S>& shared,
                                    const OpenContext& open, int32_t begin,
                                    int32_t back, int32_t row) {
  const int32_t lane = static_cast<int32_t>(threadIdx.x) % 32;
  const int32_t partial = min(begin + lane, open.num_partials - 1);
  const int32_t slot = begin == 0
                           ? open.slots[partial]
                           : slot_of_partial(args, shared, open, partial);
  LanePartial own;
  own.place = int64_t{slot + (partial == 0 ? -back : back)} * args.group + row;
  own.weight = __ldcg(args.weights + own.place);
  return own;
}

__device__ inline void weigh_partials(LanePartial& own, float before) {
  const int32_t lane = static_cast<int32_t>(threadIdx.x) % 32;
  own.highest = highest_so_far(own.weight.x, before);
  const float previous = __shfl_up_sync(~0u, own.highest, 1);
  own.of_before = relative_weight(lane == 0 ? before : previous, own.highest);
  own.of_own = relative_weight(own.weight.x, own.highest);
}

template <typename S>
__device__ void load_quads(const Arguments& args, const LanePartial& own,
                           int32_t first, int32_t count, int32_t dim,
                           float4 (&quads)[kPartialsAtOnce]) {
#pragma unroll
  for (int32_t i = 0; i < kPartialsAtOnce; ++i) {
    if (i >= count) break;
    const int64_t place = __shfl_sync(~0u, own.place, first + i);
    quads[i] = __ldcg(
        reinterpret_cast<const float4*>(args.sums + place * S::kDims + dim));
  }
}

__device__ __forceinline__ void fold_partial(Folded& folded,
                                             const LanePartial& own,
                                             int32_t lane, bool is_first,
                                             const float4& quad) {
  const float of_before = __shfl_sync(~0u, own.of_before, lane);
  const float of_own = __shfl_sync(~0u, own.of_own, lane);
  const float total = __shfl_sync(~0u, own.weight.y, lane);
  const float highest = __shfl_sync(~0u, own.highest, lane);
  if (is_first) {
    folded = {quad, make_float2(highest, total)};
    return;
  }
  folded.sum = weighted(folded.sum, of_before, quad, of_own);
  folded.weight =
      make_float2(highest, weighted(folded.weight.y, of_before, total, of_own));
}

template <typename S>
__device__ float4 combined_quad(const Arguments& args, const Shared<S>& shared,
                                const OpenContext& open, int32_t back,
                                int32_t row, int32_t dim, float scale) {
  Folded folded = {make_float4(0, 0, 0, 0), make_float2(-INFINITY, 0)};
  LanePartial own;
  for (int32_t begin = 0; begin < open.num_partials; begin += kPartialsAtOnce) {
    const int32_t first = begin % 32;
    if (first == 0) own = lane_partial(args, shared, open, begin, back, row);
    float4 quads[kPartialsAtOnce];
    load_quads<S>(args, own, first, open.num_partials - begin, dim, quads);
    if (first == 0) weigh_partials(own, folded.weight.x);
#pragma unroll
    for (int32_t i = 0; i < kPartialsAtOnce; ++i) {
      if (begin + i >= open.num_partials) break;
      fold_partial(folded, own, first + i, begin + i == 0, quads[i]);
    }
  }
  return times(folded.sum, inverse_total(folded.weight.y) * scale);
}

template <typename S>
__device__ void combine_row(const Arguments& args, const Shared<S>& shared,
                            const OpenContext& open, int32_t back,
                            int32_t row) {
  constexpr int32_t kDims = S::kDims;
  const float scale = scale_of<S>(args.value_scale, open.item.kv_head);
  const int32_t lane = static_cast<int32_t>(threadIdx.x) % 32;
#pragma unroll
  for (int32_t base = 0; base < kDims; base += 128) {
    const int32_t dim = base + lane * 4;
    const float4 quad = combined_quad<S>(args, shared, open, back, row,
                                         min(dim, kDims - 4), scale);
    if (dim < kDims) store_output(args, open.item, back, row, dim, quad);
  }
}

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
  const SharesOfContext shares = shares_of_context(args, shared, item);
  const int32_t first_share = shares.share_of(0);
  const int32_t end_of_fold =
      division_of(args, shared).begin_of(first_share + 1, item.kv_head) -
      begin_of_segment(shared, item.segment);
  if (lane == 0) {
    open.item = item;
    open.first_share = first_share;
    open.splits_of_fold = min(nearest_split(end_of_fold), item.num_splits);
    open.num_partials = 1 + item.num_splits - open.splits_of_fold;
  }
  __syncwarp();
  open.slots[lane] = slot_of_partial(args, shared, open, lane);
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
#pragma unroll 1
  for (int32_t number = 0; number < kOpenContexts; ++number) {
    const OpenContext& open = shared.open[number];
    if (!open.is_combined_here) continue;
    const int32_t num_rows = rows_of<S>(open.item) * args.group;
    for (int32_t row = static_cast<int32_t>(threadIdx.x) / 32; row < num_rows;
         row += S::kThreads / 32) {
      const int32_t back = S::kRowsAtOnce > 1 && row >= args.group ? 1 : 0;
      combine_row<S>(args, shared, open, back, row - back * args.group);
    }
  }
}

}
