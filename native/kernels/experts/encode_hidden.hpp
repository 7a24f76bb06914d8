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
  if (begin + kLaneValues <= width) {
    float4 v = __ldcg(reinterpret_cast<const float4*>(row + begin));
    return {{v.x, v.y, v.z, v.w}};
  }
  Values values;
#pragma unroll
  for (int32_t i = 0; i < kLaneValues; ++i)
    values.at[i] = begin + i < width ? __ldcg(row + begin + i) : 0.0f;
  return values;
}

__device__ inline float largest_of_row(const float* row, int32_t width,
                                       int32_t lane) {
  float largest = 0.0f;
#pragma unroll 4
  for (int32_t begin = lane * kLaneValues; begin < width;
       begin += kWarpValues) {
    Values values = hidden_values(row, begin, width);
#pragma unroll
    for (int32_t i = 0; i < kLaneValues; ++i)
      largest = fmaxf(largest, fabsf(values.at[i]));
  }
  return __uint_as_float(
      __reduce_max_sync(kWholeWarp, __float_as_uint(largest)));
}

template <int32_t dtype>
__device__ void encode_row(const ExpertsParameters& p, int32_t assignment,
                           int32_t lane) {
  const float* row = p.hidden + int64_t{assignment} * p.hidden_stride;
  uint8_t* codes = p.codes + assignment * p.encoded.row_stride;
  int32_t width = p.intermediate_size;
  float scale = 1.0f;
  if constexpr (dtype == GLM_DTYPE_F8_E4M3) {
    scale = row_scale_of(largest_of_row(row, width, lane));
    if (lane == 0) p.code_scale[assignment] = scale;
  }
  RowQuotient quotient(scale);
  constexpr int32_t kBytes = dtype_bytes(dtype);
  int32_t padded = static_cast<int32_t>(p.encoded.row_stride) / kBytes;
#pragma unroll 4
  for (int32_t begin = lane * kLaneValues; begin < padded;
       begin += kWarpValues) {
    Values v = hidden_values(row, begin, width);
    if constexpr (dtype == GLM_DTYPE_F8_E4M3) {
      uint32_t low = encode_pair(quotient(v.at[0]), quotient(v.at[1]));
      uint32_t high = encode_pair(quotient(v.at[2]), quotient(v.at[3]));
      *reinterpret_cast<uint32_t*>(codes + begin) = low | high << 16;
    } else {
      __nv_bfloat162 pairs[2] = {__floats2bfloat162_rn(v.at[0], v.at[1]),
                                 __floats2bfloat162_rn(v.at[2], v.at[3])};
      *reinterpret_cast<uint2*>(codes + begin * kBytes) =
          *reinterpret_cast<uint2*>(pairs);
    }
  }
}

template <int32_t dtype>
__device__ void encode_list(const Frame& frame, const ExpertList& list) {
  int32_t warp = team_thread() / kWarpThreads;
  int32_t lane = threadIdx.x % kWarpThreads;
  for (int32_t row = warp; row < list.count; row += kTeamWarps)
    encode_row<dtype>(frame.p, frame.order[list.begin + row], lane);
}

}

#endif
