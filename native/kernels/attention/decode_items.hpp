#pragma once

#include <cuda_bf16.h>

#include <cstdint>

#include "native/kernels/attention/context_splits.hpp"
#include "native/kernels/attention/decode_scratch.hpp"
#include "native/kernels/layout.hpp"

namespace glm::kernels::decode {

constexpr int32_t kGroupRows = kMaxGroupHeads;
constexpr int32_t kHalfBlockBytes = kBlockTokens * kHalfBytes;
constexpr int32_t kQueryBuffers = 2;
constexpr int32_t kMostHeadsOfPair = 12;
constexpr int32_t kMergeThreads = 96;
constexpr int32_t kBufferLimit = 219 * 1024;
constexpr int32_t kOpenContexts = 2;
constexpr int32_t kMostGroups = kSegmentsOfLaunch / 32;
constexpr int32_t kListedSlots = 32;
constexpr int32_t kBlocksOfCombination = 28;

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
  int32_t rows_per_sequence;
  float scale;
  bool waits_first;
  bool has_few_rows;
  int32_t num_shares;
  double inverse_shares;
  float inverse_segments;
  int32_t slots_of_share;
  uint32_t* counters;
  float* sums;
  float2* weights;
  const float* key_scale;
  const float* value_scale;
};

template <int32_t dtype_of_cache, int32_t halves, int32_t rows_at_once = 1>
struct Shape {
  static constexpr int32_t kRowsAtOnce = rows_at_once;
  static constexpr int32_t kMergedHeads =
      rows_at_once == 1 ? kGroupRows : kMostHeadsOfPair;
  static constexpr bool kIsF8 = dtype_of_cache == GLM_DTYPE_F8_E4M3;
  static constexpr int32_t kHalves = halves;
  static constexpr int32_t kDims =
      halves * kHalfBytes / dtype_bytes(dtype_of_cache);
  static constexpr int32_t kSteps = kDims / 16;
  static constexpr int32_t kTiles = kDims / 8;
  static constexpr int32_t kWarps = kDims <= 128 ? 8 : 4;
  static constexpr int32_t kStepBlocks = kDims <= 128 ? 2 : 1;
  static constexpr int32_t kRingStep = kWarps * kStepBlocks;
  static constexpr int32_t kStepsOfSplit = kSplitBlocks / kRingStep;
  static constexpr int32_t kFirstMergeThread = kWarps * 32 + 32;
  static constexpr int32_t kThreads = kFirstMergeThread + kMergeThreads;
  static constexpr int32_t kLaneQuads = (kDims + 127) / 128;
  static constexpr int32_t kBlockBytes = 2 * halves * kHalfBlockBytes;
  static constexpr int32_t kMergeStride = kDims + 8;
  static constexpr int32_t kQueryStride = kDims * 2 + kChunkBytes;
  static constexpr int32_t kMergeBytes =
      kWarps * kMergedHeads * kMergeStride * 4;
  static constexpr int32_t kQueryBytes =
      kQueryBuffers * kRowsAtOnce * kGroupRows * kQueryStride;
  static constexpr int32_t kFoldBytes = kRowsAtOnce * kMergedHeads * kDims * 4;
  static constexpr int32_t kMostStages =
      (kBufferLimit - kMergeBytes - kQueryBytes - kFoldBytes) / kBlockBytes /
      kRingStep * kRingStep;
  static constexpr int32_t kStages = kMostStages < 32 ? kMostStages : 32;
  static_assert(rows_at_once == 1 || kStepsOfSplit == 1);
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
  int32_t num_rows;
  int32_t context_length;
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

  __device__ bool is_last(int32_t split) const {
    return split + 1 == end_split;
  }

  __device__ int32_t blocks_of(int32_t split) const {
    return min(kSplitBlocks,
               num_blocks() - (split - first_split) * kSplitBlocks);
  }
};

template <typename S>
__device__ int32_t rows_of(const Item& item) {
  return S::kRowsAtOnce == 1 ? 1 : item.num_rows;
}

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
struct Shared {
  uint8_t ring[S::kStages][S::kBlockBytes];
  float merged[S::kWarps][S::kMergedHeads * S::kMergeStride];
  uint8_t query[kQueryBuffers][S::kRowsAtOnce][kGroupRows * S::kQueryStride];
  float folded_sums[S::kRowsAtOnce][S::kMergedHeads][S::kDims];
  float2 folded_weights[S::kRowsAtOnce][S::kMergedHeads];
  float2 warp_weights[kGroupRows][S::kWarps];
  uint64_t full[S::kStages];
  uint64_t empty[S::kStages];
  uint64_t query_full[kQueryBuffers];
  uint64_t query_empty[kQueryBuffers];
  uint64_t merge_full;
  uint64_t merge_empty;
  uint64_t last_full;
  int32_t group_blocks[kMostGroups];
  int32_t group_longest[kMostGroups];
  int32_t group_begin[kMostGroups];
  int32_t blocks_of_head;
  uint32_t pairs[kMostGroups];
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

struct Progress {
  int32_t num_splits = 0;
  int32_t num_parts = 0;
};

template <typename S>
__device__ int32_t num_parts(int32_t num_blocks) {
  return (num_blocks + S::kStepBlocks - 1) / S::kStepBlocks;
}

}
