#ifndef GLM_KERNELS_ATTENTION_DECODE_ITEMS_HPP
#define GLM_KERNELS_ATTENTION_DECODE_ITEMS_HPP

#include <cuda_bf16.h>

#include <cstdint>

#include "native/kernels/attention/context_chunks.hpp"
#include "native/kernels/layout.hpp"

namespace glm::kernels::decode {

constexpr int32_t kGroupRows = kMaxGroupHeads;
constexpr int32_t kHalfBlockBytes = kBlockTokens * kHalfBytes;
constexpr int32_t kSegmentsOfLaunch = 512;
constexpr int32_t kQueryBuffers = 2;
constexpr int32_t kMergeThreads = 96;
constexpr int32_t kBufferLimit = 219 * 1024;

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
  uint32_t* grid_barrier;
  float* sums;
  float2* weights;
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
  static constexpr int32_t kTiles = kDims / 8;
  static constexpr int32_t kWarps = kDims <= 128 ? 8 : 4;
  static constexpr int32_t kFirstMergeThread = kWarps * 32 + 32;
  static constexpr int32_t kThreads = kFirstMergeThread + kMergeThreads;
  static constexpr int32_t kBlockBytes = 2 * halves * kHalfBlockBytes;
  static constexpr int32_t kMergeStride = kDims + 8;
  static constexpr int32_t kQueryStride = kDims * 2 + kChunkBytes;
  static constexpr int32_t kMergeBytes = kWarps * kGroupRows * kMergeStride * 4;
  static constexpr int32_t kQueryBytes =
      kQueryBuffers * kGroupRows * kQueryStride;
  static constexpr int32_t kMostStages =
      (kBufferLimit - kMergeBytes - kQueryBytes) / kBlockBytes / kWarps *
      kWarps;
  static constexpr int32_t kStages = kMostStages < 32 ? kMostStages : 32;
};

struct Segment {
  int32_t first_chunk;
  int32_t context_length;
  int32_t table_row;
};

template <typename S>
__device__ float scale_of(const float* scales, int32_t kv_head) {
  if constexpr (S::kIsF8)
    return scales == nullptr ? 1.0f : __ldg(scales + kv_head);
  return 1.0f;
}

template <typename S>
struct Shared {
  uint8_t ring[S::kStages][S::kBlockBytes];
  float merged[S::kWarps][kGroupRows * S::kMergeStride];
  uint8_t query[kQueryBuffers][kGroupRows * S::kQueryStride];
  float2 warp_weights[S::kWarps][kGroupRows];
  uint64_t full[S::kStages];
  uint64_t empty[S::kStages];
  uint64_t query_full[kQueryBuffers];
  uint64_t query_empty[kQueryBuffers];
  uint64_t merge_full;
  uint64_t merge_empty;
  int32_t warp_chunks[kSegmentsOfLaunch / 32 + 1];
  Segment segments[1];
};

template <int32_t stages>
struct Cursor {
  int32_t slot = 0;
  uint32_t parity = 0;

  __device__ void advance(int32_t steps) {
    slot += steps;
    while (slot >= stages) {
      slot -= stages;
      parity ^= 1;
    }
  }
};

struct Item {
  int32_t segment;
  int32_t kv_head;
  int32_t chunk;
  int32_t num_chunks;
  int32_t begin;
  int32_t end;
  int32_t table_row;
  int32_t partial;

  __device__ int32_t num_blocks() const {
    return (end - begin + kBlockTokens - 1) / kBlockTokens;
  }
};

__device__ inline int32_t segment_of(const Segment* segments,
                                     int32_t num_segments, int32_t chunk) {
  const int32_t num_further = segments[num_segments].first_chunk - num_segments;
  int32_t low = max(chunk - num_further, 0);
  int32_t high = min(chunk + 1, num_segments);
  while (high - low > 1) {
    const int32_t middle = (low + high) / 2;
    if (segments[middle].first_chunk <= chunk)
      low = middle;
    else
      high = middle;
  }
  return low;
}

__device__ inline Item item_at(const Arguments& args, const Segment* segments,
                               int32_t index) {
  const int32_t chunk = index / args.num_kv_heads;
  const int32_t number = segment_of(segments, args.num_segments, chunk);
  const Segment segment = segments[number];
  Item item;
  item.segment = number;
  item.kv_head = index - chunk * args.num_kv_heads;
  item.chunk = chunk - segment.first_chunk;
  item.num_chunks = segments[number + 1].first_chunk - segment.first_chunk;
  item.begin = chunk_begin(item.chunk);
  item.end =
      max(min(chunk_begin(item.chunk + 1), segment.context_length), item.begin);
  item.table_row = segment.table_row;
  item.partial = index;
  return item;
}

}

#endif
