#ifndef GLM_KERNELS_EXPERTS_COMBINE_HPP
#define GLM_KERNELS_EXPERTS_COMBINE_HPP

#include <cuda_bf16.h>

#include <cstdint>

#include "native/kernels/experts/parameters.hpp"

namespace glm::kernels::mixture {

constexpr int32_t kLaneRows = 4;
constexpr int32_t kBatch = 8;

__device__ inline void add_weighted(float (&sum)[kLaneRows], float weight,
                                    const float4& value) {
  sum[0] = fmaf(weight, value.x, sum[0]);
  sum[1] = fmaf(weight, value.y, sum[1]);
  sum[2] = fmaf(weight, value.z, sum[2]);
  sum[3] = fmaf(weight, value.w, sum[3]);
}

__device__ inline bool is_local(const ExpertsParameters& p, int32_t index) {
  return static_cast<uint32_t>(__ldcg(p.expert_ids + index) - p.expert_begin) <
         static_cast<uint32_t>(p.num_local_experts);
}

__device__ inline void add_experts(const ExpertsParameters& p, int32_t token,
                                   int32_t row, float (&sum)[kLaneRows]) {
  for (int32_t first = 0; first < p.top_k; first += kBatch) {
    float4 value[kBatch];
    bool present[kBatch];
#pragma unroll
    for (int32_t i = 0; i < kBatch; ++i) {
      int32_t index = token * p.top_k + first + i;
      present[i] = first + i < p.top_k && is_local(p, index);
      if (present[i])
        value[i] = __ldcg(reinterpret_cast<const float4*>(
            p.partial + int64_t{index} * p.partial_stride + row));
    }
#pragma unroll
    for (int32_t i = 0; i < kBatch; ++i)
      if (present[i])
        add_weighted(sum,
                     __ldcg(p.expert_weights + token * p.top_k + first + i),
                     value[i]);
  }
}

__device__ inline void combine_rows(const ExpertsParameters& p, int32_t token,
                                    int32_t row) {
  int64_t begin = int64_t{token} * p.hidden_size + row;
  int32_t count = min(kLaneRows, p.hidden_size - row);
  float sum[kLaneRows] = {0.0f, 0.0f, 0.0f, 0.0f};
  if (p.initial != nullptr) {
#pragma unroll
    for (int32_t i = 0; i < kLaneRows; ++i)
      if (i < count) sum[i] = __bfloat162float(p.initial[begin + i]);
  }
  add_experts(p, token, row, sum);
#pragma unroll
  for (int32_t i = 0; i < kLaneRows; ++i)
    if (i < count) p.output[begin + i] = __float2bfloat16_rn(sum[i]);
}

struct CombineItems {
  int32_t first_row;
  int32_t num_rows;
  int32_t first_token;
  int32_t num_tokens;
};

__device__ inline void combine_items(const ExpertsParameters& p,
                                     const CombineItems& items, int32_t thread,
                                     int32_t num_threads) {
  int32_t row_items = items.num_rows / kLaneRows;
  for (int32_t i = thread; i < items.num_tokens * row_items; i += num_threads) {
    int32_t row = items.first_row + i % row_items * kLaneRows;
    if (row < p.hidden_size)
      combine_rows(p, items.first_token + i / row_items, row);
  }
}

}

#endif
