#ifndef GLM_KERNELS_EXPERTS_COMBINE_HPP
#define GLM_KERNELS_EXPERTS_COMBINE_HPP

#include <cuda_bf16.h>

#include <cstdint>

#include "native/collectives/peer/send_ahead.hpp"
#include "native/kernels/experts/parameters.hpp"
#include "native/ptx/discard.hpp"

namespace glm::kernels::mixture {

constexpr int32_t kLaneRows = 4;
constexpr int32_t kBatch = 9;

__device__ inline void add_weighted(float (&sum)[kLaneRows], float weight,
                                    const float4& value) {
  sum[0] = fmaf(weight, value.x, sum[0]);
  sum[1] = fmaf(weight, value.y, sum[1]);
  sum[2] = fmaf(weight, value.z, sum[2]);
  sum[3] = fmaf(weight, value.w, sum[3]);
}

struct RowSum {
  const ExpertsParameters* parameters;
  int32_t token;
  int32_t row;
  float sum[kLaneRows];
  float weight[kBatch];
  bool present[kBatch];

  __device__ RowSum(const ExpertsParameters& p, int32_t token, int32_t row)
      : parameters(&p), token(token), row(row), sum{0.0f, 0.0f, 0.0f, 0.0f} {
    prepare_batch(0);
    if (p.initial == nullptr) return;
#pragma unroll
    for (int32_t i = 0; i < kLaneRows; ++i) {
      int64_t index = begin() + (row + i < p.hidden_size ? i : 0);
      sum[i] = __bfloat162float(p.initial[index]);
    }
  }
  __device__ int64_t begin() const {
    return int64_t{token} * parameters->hidden_size + row;
  }
  __device__ void prepare_batch(int32_t first) {
    const ExpertsParameters& p = *parameters;
    int32_t id[kBatch];
#pragma unroll
    for (int32_t i = 0; i < kBatch; ++i) {
      int32_t index = token * p.top_k + min(first + i, p.top_k - 1);
      id[i] = __ldcg(p.expert_ids + index);
      weight[i] = __ldcg(p.expert_weights + index);
    }
#pragma unroll
    for (int32_t i = 0; i < kBatch; ++i)
      present[i] = first + i < p.top_k && p.local.index_of(id[i]) >= 0;
  }
  __device__ const float* partial_of(int32_t choice) const {
    const ExpertsParameters& p = *parameters;
    return p.partial + (int64_t{token} * p.top_k + choice) * p.partial_stride +
           row;
  }
  __device__ void load_batch(int32_t first, float4 (&value)[kBatch]) const {
#pragma unroll
    for (int32_t i = 0; i < kBatch; ++i) {
      value[i] = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
      if (present[i])
        value[i] =
            __ldcg(reinterpret_cast<const float4*>(partial_of(first + i)));
    }
    __syncwarp(__activemask());
  }
  __device__ void add_batch(const float4 (&value)[kBatch]) {
#pragma unroll
    for (int32_t i = 0; i < kBatch; ++i)
      if (present[i]) add_weighted(sum, weight[i], value[i]);
  }
  __device__ void discard_batch(int32_t first) const {
    const ExpertsParameters& p = *parameters;
    __syncwarp(__activemask());
    if (!p.discards_rows || row % kLineValues != 0) return;
#pragma unroll
    for (int32_t i = 0; i < kBatch; ++i)
      if (present[i]) ptx::discard_line(partial_of(first + i));
  }
  __device__ void finish(const float4 (&value)[kBatch]) {
    add_batch(value);
    discard_batch(0);
    for (int32_t first = kBatch; first < parameters->top_k; first += kBatch) {
      float4 more[kBatch];
      prepare_batch(first);
      load_batch(first, more);
      add_batch(more);
      discard_batch(first);
    }
    store();
  }
  __device__ void store() const {
    __nv_bfloat16* output = parameters->output + begin();
    if (parameters->hidden_size % kLaneRows == 0) {
      __nv_bfloat162 pairs[2] = {__floats2bfloat162_rn(sum[0], sum[1]),
                                 __floats2bfloat162_rn(sum[2], sum[3])};
      const uint2 words = *reinterpret_cast<uint2*>(pairs);
      collectives::send_ahead(parameters->peers, token, begin(), words);
      *reinterpret_cast<uint2*>(output) = words;
      return;
    }
#pragma unroll
    for (int32_t i = 0; i < kLaneRows; ++i)
      if (row + i < parameters->hidden_size)
        output[i] = __float2bfloat16_rn(sum[i]);
  }
};

__device__ inline void sum_tokens(RowSum own, int32_t end, int32_t step) {
  while (true) {
    float4 value[kBatch];
    own.load_batch(0, value);
    int32_t token = own.token + step;
    RowSum next(*own.parameters, min(token, end - 1), own.row);
    own.finish(value);
    if (token >= end) return;
    own = next;
  }
}

}

#endif
