#pragma once

#include "native/kernels/attention/decode_items.hpp"

namespace glm::kernels::decode {

constexpr int32_t kLeastSplitsForPairs = 6;

__device__ inline uint32_t pairs_of_group(const Segment& segment) {
  const int32_t lane = static_cast<int32_t>(threadIdx.x) % 32;
  const int32_t length = __shfl_up_sync(~0u, segment.context_length, 1);
  const int32_t table_row = __shfl_up_sync(~0u, segment.table_row, 1);
  const bool follows = lane > 0 && table_row == segment.table_row &&
                       length + 1 == segment.context_length &&
                       length % kSplitTokens != 0;
  const uint32_t others = ~__ballot_sync(~0u, follows) << (31 - lane);
  const int32_t num_before = __clz(static_cast<int32_t>(others));
  return __ballot_sync(~0u, num_before % 2 == 1);
}

__device__ inline bool is_read_with_next(uint32_t pairs, int32_t number) {
  return (pairs >> 1 >> number % 32 & 1) != 0;
}

template <typename S>
__device__ bool is_read_with_next(const Shared<S>& shared, int32_t segment) {
  if constexpr (S::kRowsAtOnce == 1)
    return false;
  else
    return is_read_with_next(shared.pairs[segment / 32], segment);
}

template <typename S>
__device__ int32_t rows_read_with(const Shared<S>& shared, int32_t segment) {
  if constexpr (S::kRowsAtOnce == 1)
    return 1;
  else
    return 1 +
           static_cast<int32_t>(shared.pairs[segment / 32] >> segment % 32 & 1);
}

}
