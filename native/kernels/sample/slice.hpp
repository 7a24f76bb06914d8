#pragma once

#include <cstdint>

#include "native/kernels/sample/cluster_row.hpp"

namespace glm::kernels::sampling {

constexpr int32_t kNumBins = 2 * kThreads;
constexpr int32_t kMassWords = 2;
constexpr int32_t kGroups = kThreads / 2;

struct SelectedBin {
  uint32_t bin;
  uint64_t before;
  uint64_t weight;
};

struct Bins {
  alignas(16) uint32_t words[kMassWords][kNumBins];
};

struct BestSearch {
  uint64_t groups[kGroups];
  uint64_t best[GLM_MAX_LOGPROBS];
  uint64_t threshold;
  uint32_t num_candidates;
};

struct RowShared {
  Bins bins[2];
  ExchangeShared exchange;
  BestSearch search;
  uint64_t warp_sums[kWarps];
  SelectedBin selected;
  alignas(16) float values[kQuad];
};

__host__ __device__ constexpr int64_t shared_bytes(int64_t vocab_size) {
  return sizeof(RowShared) +
         part_tokens(vocab_size, kRowBlocks) * sizeof(float);
}

constexpr int32_t kMaxGroupTokens =
    sizeof(RowShared::bins) / sizeof(uint64_t) / GLM_MAX_LOGPROBS;
static_assert(kMaxVocab ==
              kMaxGroupTokens / (2 * kQuad) * kQuad * kThreads * kRowBlocks);

class Row {
 public:
  __device__ Row(RowShared& given, int32_t vocab_size)
      : shared(given),
        exchange(given.exchange, kRowBlocks),
        vocab_size(vocab_size),
        part(part_of(vocab_size, kRowBlocks)) {}

  __device__ Bins& next_bins() {
    parity_ ^= 1;
    return shared.bins[parity_];
  }

  template <typename Visit>
  __device__ void for_each_quad(Visit visit) const {
    for (int32_t at = threadIdx.x * kQuad; at < part.count;
         at += kThreads * kQuad)
      visit(at, *reinterpret_cast<float4*>(shared.values + at));
  }

  template <typename Visit>
  __device__ void for_each_token(Visit visit) const {
    for_each_quad([&](int32_t at, const float4& quad) {
      visit(part.begin + at, quad.x);
      if (at + 1 < part.count) visit(part.begin + at + 1, quad.y);
      if (at + 2 < part.count) visit(part.begin + at + 2, quad.z);
      if (at + 3 < part.count) visit(part.begin + at + 3, quad.w);
    });
  }

  RowShared& shared;
  Exchange exchange;
  int32_t vocab_size;
  Part part;

 private:
  int32_t parity_ = 0;
};

}
