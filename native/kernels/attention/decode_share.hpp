#pragma once

#include "native/kernels/attention/decode_pairs.hpp"

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

template <typename S>
__device__ void go_to_row_that_reads(const Shared<S>& shared, Place& place) {
  if (is_read_with_next(shared, place.segment)) ++place.segment;
}

template <typename S>
__device__ void go_to_next_context(const Arguments& args,
                                   const Shared<S>& shared, Place& place) {
  place.split = 0;
  if (++place.segment >= args.num_segments) {
    place.segment = 0;
    ++place.kv_head;
  }
  go_to_row_that_reads(shared, place);
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
    go_to_next_context(args, shared, result);
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
__device__ void count_group(const Arguments& args, Shared<S>& shared,
                            int32_t number, Segment segment, uint32_t pairs) {
  const bool is_counted =
      number < args.num_segments && !is_read_with_next(pairs, number);
  const int32_t own = is_counted ? counted_blocks(segment.context_length) : 0;
  const int32_t sum = sum_up_to_lane(own);
  const int32_t longest = __reduce_max_sync(~0u, own);
  segment.begin_in_group = sum - own;
  if (number < args.num_segments) shared.segments[number] = segment;
  if (number % 32 < 31) return;
  shared.group_blocks[number / 32] = sum;
  shared.group_longest[number / 32] = longest;
  shared.pairs[number / 32] = pairs;
}

struct Counted {
  int32_t group_begin;
  int32_t blocks_of_head;
  int32_t longest;

  template <typename S>
  __device__ Counted(const Arguments& args, const Shared<S>& shared) {
    const int32_t lane = static_cast<int32_t>(threadIdx.x) % 32;
    const bool has_group = lane * 32 < args.num_segments;
    const int32_t own = has_group ? shared.group_blocks[lane] : 0;
    longest =
        __reduce_max_sync(~0u, has_group ? shared.group_longest[lane] : 0);
    const int32_t sum = sum_up_to_lane(own);
    group_begin = has_group ? sum - own : INT32_MAX;
    blocks_of_head = __shfl_sync(~0u, sum, 31);
  }
};

__device__ inline int32_t splits_of_share(const Arguments& args,
                                          const Counted& counted) {
  const double blocks = 1.0 * counted.blocks_of_head * args.num_kv_heads;
  return static_cast<int32_t>(blocks * args.inverse_shares / kSplitBlocks);
}

__device__ inline bool has_slots_for_pairs(const Arguments& args,
                                           const Counted& counted) {
  const int32_t most_splits =
      min(splits_of_share(args, counted) + 2, num_splits(counted.longest));
  return 2 * most_splits + 2 <= args.slots_of_share;
}

template <typename S>
__device__ Counted count_again(const Arguments& args, Shared<S>& shared,
                               bool in_pairs) {
  const int32_t lane = static_cast<int32_t>(threadIdx.x);
  for (int32_t number = lane; number - lane < args.num_segments; number += 32) {
    Segment segment = {};
    if (number < args.num_segments) segment = shared.segments[number];
    count_group(args, shared, number, segment,
                in_pairs ? pairs_of_group(segment) : 0);
  }
  __syncwarp();
  return Counted(args, shared);
}

template <typename S>
__device__ Counted count_in_pairs(const Arguments& args, Shared<S>& shared,
                                  const Counted& alone) {
  if (splits_of_share(args, alone) < kLeastSplitsForPairs) return alone;
  const Counted counted = count_again(args, shared, true);
  return has_slots_for_pairs(args, counted) ? counted
                                            : count_again(args, shared, false);
}

template <typename S>
__device__ void find_ends(const Arguments& args, Shared<S>& shared) {
  const int32_t lane = static_cast<int32_t>(threadIdx.x) % 32;
  Counted counted(args, shared);
  if constexpr (S::kRowsAtOnce == 2)
    counted = count_in_pairs(args, shared, counted);
  const Division division = {counted.blocks_of_head, args.num_kv_heads,
                             args.num_shares, args.inverse_shares};
  if (lane * 32 < args.num_segments)
    shared.group_begin[lane] = counted.group_begin;
  if (lane == 0) shared.blocks_of_head = division.blocks_of_head;
  const bool is_whole = are_contexts_whole(args, division, counted.longest);
  const auto share = static_cast<int32_t>(blockIdx.x);
#pragma unroll
  for (int32_t i = 0; i < 2; ++i) {
    Place end = is_whole ? place_of_context(args, share + i)
                         : place_of_share(args, shared, division,
                                          counted.group_begin, share + i);
    go_to_row_that_reads(shared, end);
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

template <typename S>
__device__ Item item_at(const Shared<S>& shared, const Place& place,
                        int32_t end_split) {
  const Segment segment = shared.segments[place.segment];
  Item item;
  item.segment = place.segment;
  item.num_rows = rows_read_with(shared, place.segment);
  item.context_length = segment.context_length;
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

template <typename S>
struct Walk {
  const Arguments& args;
  const Shared<S>& shared;
  Place at;
  const Place& end;

  __device__ Walk(const Arguments& args, const Shared<S>& shared)
      : args(args), shared(shared), at(shared.ends[0]), end(shared.ends[1]) {}

  __device__ bool is_done() const { return at == end; }

  __device__ Item take_or_nothing() { return is_done() ? Item{} : take(); }

  __device__ Item take() {
    const bool is_last = at.segment == end.segment && at.kv_head == end.kv_head;
    const Item item = item_at(shared, at, is_last ? end.split : kAllSplits);
    if (is_last)
      at = end;
    else
      go_to_next_context(args, shared, at);
    return item;
  }
};

template <typename S>
__device__ Item last_item(const Arguments& args, const Shared<S>& shared) {
  const Place& begin = shared.ends[0];
  Place last = shared.ends[1];
  const int32_t end_split = last.split > 0 ? last.split : kAllSplits;
  if (last.split == 0) {
    last.segment -= rows_read_with(shared, last.segment);
    if (last.segment < 0) {
      last.segment = args.num_segments - 1;
      --last.kv_head;
    }
  }
  const bool is_first =
      begin.segment == last.segment && begin.kv_head == last.kv_head;
  last.split = is_first ? begin.split : 0;
  return item_at(shared, last, end_split);
}

}
