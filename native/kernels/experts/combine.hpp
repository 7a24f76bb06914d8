#pragma once

#include <cuda_bf16.h>

#include <cstdint>

#include "native/collectives/peer/send_ahead.hpp"
#include "native/kernels/experts/parameters.hpp"
#include "native/ptx/discard.hpp"
#include "native/ptx/opaque.hpp"

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

struct Choices {
  float weight[kBatch];
  uint32_t present = 0;

  __device__ Choices(const ExpertsParameters& p, int32_t token, int32_t first) {
    int32_t begin = token * p.top_k + first;
    int32_t last = p.top_k - 1 - first;
    int32_t id[kBatch];
#pragma unroll
    for (int32_t i = 0; i < kBatch; ++i) {
      int32_t index = begin + min(i, last);
      id[i] = __ldcg(p.expert_ids + index);
      weight[i] = __ldcg(p.expert_weights + index);
    }
#pragma unroll
    for (int32_t i = 0; i < kBatch; ++i)
      present |= static_cast<uint32_t>(p.local.has(id[i]) & (i <= last)) << i;
  }
  __device__ bool has(int32_t place) const { return present >> place & 1; }
};

class RowSum {
 public:
  __device__ RowSum(const ExpertsParameters& p, int32_t token, int32_t row)
      : p_(p), token_(token), row_(row), choices_(p, token, 0) {
    begin();
  }

  __device__ void add_tokens(int32_t end, int32_t step) {
    while (true) {
      float4 value[kBatch];
      load(choices_, 0, value);
      int32_t token = token_ + step;
      bool is_last = token >= end;
      Choices next = choices_;
      if (!is_last) next = Choices(p_, token, 0);
      add(choices_, value);
      discard(choices_, 0);
      add_more();
      store();
      if (is_last) return;
      token_ = token;
      choices_ = next;
      begin();
    }
  }

 private:
  __device__ int64_t place() const {
    return int64_t{token_} * p_.hidden_size + row_;
  }
  __device__ void begin() {
    partial_ =
        p_.partial + int64_t{token_} * p_.top_k * p_.partial_stride + row_;
#pragma unroll
    for (int32_t i = 0; i < kLaneRows; ++i) sum_[i] = 0.0f;
    if (p_.initial == nullptr) return;
#pragma unroll
    for (int32_t i = 0; i < kLaneRows; ++i)
      sum_[i] = __bfloat162float(
          p_.initial[place() + (row_ + i < p_.hidden_size ? i : 0)]);
  }
  __device__ const float* partial_of(int32_t choice) const {
    return partial_ + int64_t{choice} * p_.partial_stride;
  }
  __device__ void load(const Choices& choices, int32_t first,
                       float4 (&value)[kBatch]) const {
    const float* partial = partial_of(first);
#pragma unroll
    for (int32_t i = 0; i < kBatch; ++i, partial += p_.partial_stride) {
      value[i] = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
      if (choices.has(i))
        value[i] = __ldcg(reinterpret_cast<const float4*>(partial));
    }
    __syncwarp(__activemask());
  }
  __device__ void add(const Choices& choices, const float4 (&value)[kBatch]) {
#pragma unroll
    for (int32_t i = 0; i < kBatch; ++i)
      if (choices.has(i)) add_weighted(sum_, choices.weight[i], value[i]);
  }
  __device__ void discard(const Choices& choices, int32_t first) const {
    __syncwarp(__activemask());
    if (!p_.discards_rows || row_ % kLineValues != 0) return;
    const float* partial = ptx::opaque(partial_of(first));
#pragma unroll
    for (int32_t i = 0; i < kBatch; ++i, partial += p_.partial_stride)
      if (choices.has(i)) ptx::discard_line(partial);
  }
  __device__ void add_more() {
#pragma unroll 1
    for (int32_t first = kBatch; first < p_.top_k; first += kBatch) {
      float4 value[kBatch];
      Choices choices(p_, token_, first);
      load(choices, first, value);
      add(choices, value);
      discard(choices, first);
    }
  }
  __device__ void store() const {
    __nv_bfloat16* output = p_.output + place();
    if (p_.hidden_size % kLaneRows == 0) {
      __nv_bfloat162 pairs[2] = {__floats2bfloat162_rn(sum_[0], sum_[1]),
                                 __floats2bfloat162_rn(sum_[2], sum_[3])};
      const uint2 words = *reinterpret_cast<uint2*>(pairs);
      collectives::send_ahead(p_.peers, token_, place(), words);
      *reinterpret_cast<uint2*>(output) = words;
      return;
    }
#pragma unroll
    for (int32_t i = 0; i < kLaneRows; ++i)
      if (row_ + i < p_.hidden_size) output[i] = __float2bfloat16_rn(sum_[i]);
  }

  const ExpertsParameters& p_;
  int32_t token_;
  int32_t row_;
  Choices choices_;
  const float* partial_;
  float sum_[kLaneRows];
};

}
