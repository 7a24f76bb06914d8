#ifndef GLM_KERNELS_EXPERTS_ENCODE_HIDDEN_HPP
#define GLM_KERNELS_EXPERTS_ENCODE_HIDDEN_HPP

#include <cuda_bf16.h>

#include <cstdint>

#include "native/kernels/experts/shared_state.hpp"
#include "native/kernels/quantise/codes.hpp"

namespace glm::kernels::mixture {

constexpr int32_t kLaneValues = 4;
constexpr int32_t kWarpValues = kLaneValues * kWarpThreads;

struct Values {
  float at[kLaneValues];
};

__device__ inline Values hidden_values(const float* row, int32_t begin,
                                       int32_t width) {
  int32_t inside = begin < width ? begin : 0;
  float4 v = __ldcg(reinterpret_cast<const float4*>(row + inside));
  Values values = {{v.x, v.y, v.z, v.w}};
#pragma unroll
  for (int32_t i = 0; i < kLaneValues; ++i)
    values.at[i] = begin + i < width ? values.at[i] : 0.0f;
  return values;
}

constexpr int32_t kRowParts = 12;

struct RowValues {
  Values part[kRowParts];

  __device__ RowValues(const float* row, int32_t first, int32_t width) {
#pragma unroll
    for (int32_t i = 0; i < kRowParts; ++i)
      part[i] = hidden_values(row, first + i * kWarpValues, width);
  }
  __device__ float largest() const {
    float result = 0.0f;
#pragma unroll
    for (int32_t i = 0; i < kRowParts; ++i)
#pragma unroll
      for (int32_t j = 0; j < kLaneValues; ++j)
        result = fmaxf(result, fabsf(part[i].at[j]));
    return result;
  }
};

template <int32_t dtype>
__device__ inline void store_values(uint8_t* codes, int32_t begin,
                                    const Values& v,
                                    const RowQuotient& quotient) {
  if constexpr (dtype == GLM_DTYPE_F8_E4M3) {
    uint32_t low = encode_pair(quotient(v.at[0]), quotient(v.at[1]));
    uint32_t high = encode_pair(quotient(v.at[2]), quotient(v.at[3]));
    *reinterpret_cast<uint32_t*>(codes + begin) = low | high << 16;
  } else {
    __nv_bfloat162 pairs[2] = {__floats2bfloat162_rn(v.at[0], v.at[1]),
                               __floats2bfloat162_rn(v.at[2], v.at[3])};
    *reinterpret_cast<uint2*>(codes + begin * sizeof(__nv_bfloat16)) =
        *reinterpret_cast<uint2*>(pairs);
  }
}

__device__ inline const float* hidden_row(const ExpertsParameters& p,
                                          int32_t assignment) {
  return p.hidden + int64_t{assignment} * p.hidden_stride;
}

template <int32_t dtype>
__device__ inline void encode_row(const ExpertsParameters& p,
                                  int32_t assignment, RowValues values,
                                  int32_t first) {
  constexpr int32_t kSpan = kRowParts * kWarpValues;
  const float* row = hidden_row(p, assignment);
  uint8_t* codes = p.codes + assignment * p.encoded.row_stride;
  int32_t width = p.intermediate_size;
  int32_t padded =
      static_cast<int32_t>(p.encoded.row_stride) / dtype_bytes(dtype);
  float largest = values.largest();
  for (int32_t begin = first + kSpan; begin < width; begin += kSpan)
    largest = fmaxf(largest, RowValues(row, begin, width).largest());
  float scale = row_scale_of(
      __uint_as_float(__reduce_max_sync(kWholeWarp, __float_as_uint(largest))));
  if (first == 0) p.code_scale[assignment] = scale;
  RowQuotient quotient(scale);
  for (int32_t begin = first;;) {
#pragma unroll
    for (int32_t i = 0; i < kRowParts; ++i)
      if (begin + i * kWarpValues < padded)
        store_values<dtype>(codes, begin + i * kWarpValues, values.part[i],
                            quotient);
    begin += kSpan;
    if (begin >= padded) return;
    values = RowValues(row, begin, width);
  }
}

template <int32_t dtype>
__device__ inline void encode_list(const Frame& frame, const ExpertList& list,
                                   int32_t warp, int32_t lane) {
  if (warp >= list.count) return;
  const ExpertsParameters& p = frame.p;
  const uint16_t* order = frame.order + list.begin;
  int32_t first = lane * kLaneValues;
  int32_t width = p.intermediate_size;
  RowValues values(hidden_row(p, order[warp]), first, width);
  for (int32_t row = warp; row < list.count; row += kFinishWarps) {
    int32_t following = min(row + kFinishWarps, list.count - 1);
    RowValues next(hidden_row(p, order[following]), first, width);
    encode_row<dtype>(p, order[row], values, first);
    values = next;
  }
}

}

#endif
