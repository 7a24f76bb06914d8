#ifndef GLM_KERNELS_ATTENTION_DECODE_ITEMS_HPP
#define GLM_KERNELS_ATTENTION_DECODE_ITEMS_HPP

#include <cuda_bf16.h>

#include <cstdint>

#include "native/kernels/attention/context_splits.hpp"
#include "native/kernels/layout.hpp"

namespace glm::kernels::decode {

constexpr int32_t kGroupRows = kMaxGroupHeads;
constexpr int32_t kHalfBlockBytes = kBlockTokens * kHalfBytes;
constexpr int32_t kSegmentsOfLaunch = 512;
constexpr int32_t kQueryBuffers = 2;
constexpr int32_t kScoreWarps = 8;
constexpr int32_t kValueWarps = 4;
constexpr int32_t kStreamWarp = kScoreWarps + kValueWarps;
constexpr int32_t kThreads = (kStreamWarp + 1) * 32;
constexpr int32_t kPartTokens = kPartBlocks * kBlockTokens;
constexpr int32_t kStageParts = 2;
constexpr int32_t kStageBlocks = kStageParts * kPartBlocks;
constexpr int32_t kShareSlack = 16;
constexpr int32_t kOpenContexts = 2;
constexpr int32_t kMostGroups = kSegmentsOfLaunch / 32;
constexpr int32_t kListedSlots = 96;
constexpr int32_t kPartialExtra = 8;
constexpr int32_t kTopPlace = 4;
constexpr int32_t kPartialBuffers = 2;
constexpr int32_t kGridBlocks = 16;
constexpr int32_t kWholeMultiprocessor = 188 * 1024;
constexpr int32_t kBlocksOfCombination = 28;
constexpr int32_t kMostShares = 160;
constexpr int32_t kCounterStride = 8;

constexpr int32_t max_of(int32_t left, int32_t right) {
  return left > right ? left : right;
}

struct Arguments {
  const __nv_bfloat16* query;
  __nv_bfloat16* output;
  const uint8_t* pages;
  const int32_t* context_length;
  const int32_t* table_row;
  const int32_t* page_table;
  int32_t page_table_stride;
  int32_t num_segments;
  int32_t num_heads;
  int32_t num_kv_heads;
  int32_t group;
  int32_t head_dim;
  int32_t page_size;
  float scale;
  bool waits_first;
  bool has_few_rows;
  int32_t num_shares;
  double inverse_shares;
  float inverse_segments;
  int32_t splits_of_share;
  uint32_t* counters;
  float* partials;
  const float* key_scale;
  const float* value_scale;
};

template <int32_t dtype_of_cache, int32_t halves>
struct Shape {
  static constexpr bool kIsF8 = dtype_of_cache == GLM_DTYPE_F8_E4M3;
  static constexpr int32_t kHalves = halves;
  static constexpr int32_t kDims =
      halves * kHalfBytes / dtype_bytes(dtype_of_cache);
  static constexpr int32_t kSteps = kDims / 16;
  static constexpr int32_t kSplitBlocks = split_blocks(kDims);
  static constexpr int32_t kSplitTokens = kSplitBlocks * kBlockTokens;
  static constexpr int32_t kParts = kSplitBlocks / kPartBlocks;
  static constexpr int32_t kTeams = kScoreWarps / kParts;
  static constexpr int32_t kWarpTiles = kDims / 8 / kValueWarps;
  static constexpr int32_t kPartialStride = kDims + kPartialExtra;
  static constexpr int32_t kBlockBytes = 2 * halves * kHalfBlockBytes;
  static constexpr int32_t kStageBytes = kStageBlocks * kBlockBytes;
  static constexpr int32_t kQueryStride = kDims * 2 + kChunkBytes;
  static constexpr int32_t kRingBytes = (kIsF8 ? 176 : 128) * 1024;
  static constexpr int32_t kStages = max_of(kRingBytes / kStageBytes, 3);
  static constexpr int32_t kBufferBytes =
      max_of(kStages * kStageBytes, kWholeMultiprocessor);
  static constexpr int32_t kStagesBehind =
      2 * kTeams * kSplitBlocks / kStageBlocks;
  static constexpr int32_t kArrivals =
      static_cast<int32_t>(ceil_divide(kStagesBehind, kStages)) * kStages;
};

struct Segment {
  int32_t begin_in_group;
  int32_t context_length;
  int32_t table_row;
};

struct Place {
  int32_t segment;
  int32_t kv_head;
  int32_t split;

  __device__ bool operator==(const Place& other) const {
    return segment == other.segment && kv_head == other.kv_head &&
           split == other.split;
  }
};

template <typename S>
__device__ float scale_of(const float* scales, int32_t kv_head) {
  if constexpr (S::kIsF8)
    return scales == nullptr ? 1.0f : __ldg(scales + kv_head);
  return 1.0f;
}

__device__ inline int32_t num_blocks_of(int32_t num_tokens) {
  return (num_tokens + kBlockTokens - 1) / kBlockTokens;
}

struct Item {
  int32_t segment;
  int32_t kv_head;
  int32_t first_split;
  int32_t end_split;
  int32_t num_splits;
  int32_t begin;
  int32_t end;
  int32_t table_row;

  __device__ int32_t num_blocks() const { return num_blocks_of(end - begin); }

  __device__ bool has_splits() const { return end_split > first_split; }

  __device__ bool is_folded() const { return first_split == 0; }

  __device__ bool is_whole() const {
    return first_split == 0 && end_split == num_splits;
  }

  __device__ bool has_newest() const { return end_split == num_splits; }
};

struct OpenContext {
  Item item;
  int32_t is_open;
  int32_t is_combined_here;
  int32_t first_share;
  int32_t splits_of_fold;
  int32_t num_partials;
  int32_t slots[kListedSlots];
};

template <typename S>
struct Weights {
  uint4 blocks[S::kSplitBlocks][32];
  float2 totals[S::kParts][32];
  float2 tops[32];
};

template <typename S>
struct Shared {
  union {
    uint8_t ring[S::kStages][kStageBlocks][S::kBlockBytes];
    uint8_t partials[S::kBufferBytes];
  };
  Weights<S> weights[S::kTeams];
  uint8_t query[kQueryBuffers][kGroupRows * S::kQueryStride];
  float part_tops[S::kTeams][2][kGroupRows][S::kParts];
  uint64_t full[S::kArrivals];
  uint64_t empty[S::kStages];
  uint64_t partials_full[kPartialBuffers];
  uint64_t weights_full[S::kTeams];
  uint64_t weights_empty[S::kTeams];
  uint64_t query_full[kQueryBuffers];
  uint64_t query_empty[kQueryBuffers];
  int32_t group_blocks[kMostGroups];
  int32_t group_longest[kMostGroups];
  int32_t group_begin[kMostGroups];
  int32_t blocks_of_head;
  Place ends[2];
  OpenContext open[kOpenContexts];
  Segment segments[1];
};

template <int32_t stages>
struct Cursor {
  int32_t slot = 0;
  uint32_t parity = 0;

  template <int32_t steps>
  __device__ void advance() {
    static_assert(steps <= stages);
    slot += steps;
    if (slot < stages) return;
    slot -= stages;
    parity ^= 1;
  }

  __device__ void advance(int32_t steps) {
    slot += steps;
    while (slot >= stages) {
      slot -= stages;
      parity ^= 1;
    }
  }
};

template <typename S>
struct RingCursor {
  Cursor<S::kStages> place;
  Cursor<S::kArrivals> arrival;

  __device__ void advance(int32_t steps) {
    place.advance(steps);
    arrival.advance(steps);
  }
};

GLM_HOST_DEVICE constexpr int32_t num_stages(int32_t num_tokens) {
  return static_cast<int32_t>(
      ceil_divide(num_tokens, kStageBlocks * kBlockTokens));
}

}

#endif
