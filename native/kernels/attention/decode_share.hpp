#pragma once

#include "native/kernels/attention/decode_items.hpp"

namespace glm::kernels::decode {

struct Division {
  int32_t blocks_of_head;
  int32_t num_kv_heads;
  int32_t num_shares;
  double inverse_shares;

  __device__ int32_t head_of(int32_t share) const {
    return static_cast<int32_t>((share * num_kv_heads + 0.5) * inverse_shares);
  }

  __device__ int32_t begin_of(int32_t share, int32_t kv_head) const {
    const double rest = share * num_kv_heads - kv_head * num_shares;
    return static_cast<int32_t>((rest * blocks_of_head + 0.5) * inverse_shares);
  }
};

template <typename S>
__device__ Division division_of(const Arguments& args,
                                const Shared<S>& shared) {
  return {shared.blocks_of_head, args.num_kv_heads, args.num_shares,
          args.inverse_shares};
}

template <typename S>
__device__ int32_t begin_of_segment(const Shared<S>& shared, int32_t segment) {
  return shared.group_begin[segment / 32] +
         shared.segments[segment].begin_in_group;
}

__device__ inline int32_t num_at_most(int32_t value, int32_t limit) {
  return __popc(__ballot_sync(~0u, value <= limit));
}

__device__ inline void go_to_next_context(const Arguments& args, Place& place) {
  place.split = 0;
  if (++place.segment < args.num_segments) return;
  place.segment = 0;
  ++place.kv_head;
}

template <typename S>
__device__ Place place_of_block(const Arguments& args, const Shared<S>& shared,
                                int32_t kv_head, int32_t group_begin,
                                int32_t block) {
  const int32_t lane = static_cast<int32_t>(threadIdx.x) % 32;
  const int32_t group = num_at_most(group_begin, block) - 1;
  block -= __shfl_sync(~0u, group_begin, group);
  const int32_t number = group * 32 + lane;
  const int32_t begin = number < args.num_segments
                            ? shared.segments[number].begin_in_group
                            : INT32_MAX;
  const int32_t place = num_at_most(begin, block) - 1;
  Place result = {group * 32 + place, kv_head,
                  nearest_split(block - __shfl_sync(~0u, begin, place))};
  const int32_t length = shared.segments[result.segment].context_length;
  if (result.split == num_splits(counted_blocks(length)))
    go_to_next_context(args, result);
  return result;
}

template <typename S>
__device__ Place place_of_share(const Arguments& args, const Shared<S>& shared,
                                const Division& division, int32_t group_begin,
                                int32_t share) {
  if (share >= args.num_shares) return {0, args.num_kv_heads, 0};
  const int32_t kv_head = division.head_of(share);
  return place_of_block(args, shared, kv_head, group_begin,
                        division.begin_of(share, kv_head));
}

__device__ inline bool are_contexts_whole(const Arguments& args,
                                          const Division& division,
                                          int32_t longest) {
  if (args.num_segments * args.num_kv_heads > static_cast<int32_t>(gridDim.x))
    return false;
  const auto share = static_cast<int32_t>(
      1.0 * division.blocks_of_head * args.num_kv_heads * args.inverse_shares);
  return longest <= num_splits(share + 1) * kSplitBlocks + kBlocksOfCombination;
}

__device__ inline Place place_of_context(const Arguments& args,
                                         int32_t number) {
  if (number >= args.num_segments * args.num_kv_heads)
    return {0, args.num_kv_heads, 0};
  const auto kv_head =
      static_cast<int32_t>((number + 0.5f) * args.inverse_segments);
  return {number - kv_head * args.num_segments, kv_head, 0};
}

__device__ inline int32_t sum_up_to_lane(int32_t own) {
  const int32_t lane = static_cast<int32_t>(threadIdx.x) % 32;
  for (int32_t step = 1; step < 32; step *= 2) {
    const int32_t before = __shfl_up_sync(~0u, own, step);
    if (lane >= step) own += before;
  }
  return own;
}

template <typename S>
__device__ void find_ends(const Arguments& args, Shared<S>& shared) {
  const int32_t lane = static_cast<int32_t>(threadIdx.x) % 32;
  const bool has_group = lane * 32 < args.num_segments;
  const int32_t own = has_group ? shared.group_blocks[lane] : 0;
  const int32_t longest =
      __reduce_max_sync(~0u, has_group ? shared.group_longest[lane] : 0);
  const int32_t sum = sum_up_to_lane(own);
  const int32_t group_begin = has_group ? sum - own : INT32_MAX;
  const Division division = {__shfl_sync(~0u, sum, 31), args.num_kv_heads,
                             args.num_shares, args.inverse_shares};
  if (has_group) shared.group_begin[lane] = group_begin;
  if (lane == 0) shared.blocks_of_head = division.blocks_of_head;
  const bool is_whole = are_contexts_whole(args, division, longest);
  const auto share = static_cast<int32_t>(blockIdx.x);
#pragma unroll
  for (int32_t i = 0; i < 2; ++i) {
    const Place end = is_whole ? place_of_context(args, share + i)
                               : place_of_share(args, shared, division,
                                                group_begin, share + i);
    if (lane == 0) shared.ends[i] = end;
  }
}

struct SharesOfContext {
  double shares_of_block;
  double position;
  int32_t num_blocks;

  __device__ int32_t share_of(int32_t split) const {
    const int32_t middle =
        min(split * kSplitBlocks + kSplitBlocks / 2, num_blocks);
    return static_cast<int32_t>((position + middle) * shares_of_block);
  }
};

template <typename S>
__device__ SharesOfContext shares_of_context(const Arguments& args,
                                             const Shared<S>& shared,
                                             const Item& item) {
  const double blocks_of_head = shared.blocks_of_head;
  SharesOfContext shares;
  shares.shares_of_block =
      args.num_shares / (blocks_of_head * args.num_kv_heads);
  shares.position = blocks_of_head * item.kv_head +
                    begin_of_segment(shared, item.segment) -
                    0.5 / args.num_shares;
  shares.num_blocks =
      counted_blocks(shared.segments[item.segment].context_length);
  return shares;
}

constexpr int32_t kAllSplits = 1 << 30;

__device__ inline Item item_at(const Segment* segments, const Place& place,
                               int32_t end_split) {
  const Segment segment = segments[place.segment];
  Item item;
  item.segment = place.segment;
  item.kv_head = place.kv_head;
  item.first_split = place.split;
  item.num_splits = num_splits(counted_blocks(segment.context_length));
  item.end_split = min(end_split, item.num_splits);
  item.begin = place.split * kSplitTokens;
  item.end = max(min(item.end_split * kSplitTokens, segment.context_length),
                 item.begin);
  item.table_row = segment.table_row;
  return item;
}

struct Walk {
  const Arguments& args;
  const Segment* segments;
  Place at;
  const Place& end;

  template <typename S>
  __device__ Walk(const Arguments& args, const Shared<S>& shared)
      : args(args),
        segments(shared.segments),
        at(shared.ends[0]),
        end(shared.ends[1]) {}

  __device__ bool is_done() const { return at == end; }

  __device__ Item take_or_nothing() { return is_done() ? Item{} : take(); }

  __device__ Item take() {
    const bool is_last = at.segment == end.segment && at.kv_head == end.kv_head;
    const Item item = item_at(segments, at, is_last ? end.split : kAllSplits);
    if (is_last)
      at = end;
    else
      go_to_next_context(args, at);
    return item;
  }
};

template <typename S>
__device__ Item last_item(const Arguments& args, const Shared<S>& shared) {
  const Place& begin = shared.ends[0];
  Place last = shared.ends[1];
  const int32_t end_split = last.split > 0 ? last.split : kAllSplits;
  if (last.split == 0 && --last.segment < 0) {
    last.segment = args.num_segments - 1;
    --last.kv_head;
  }
  const bool is_first =
      begin.segment == last.segment && begin.kv_head == last.kv_head;
  last.split = is_first ? begin.split : 0;
  return item_at(shared.segments, last, end_split);
}

}
