#pragma once

#include <cuda_bf16.h>

#include <cstdint>

#include "native/kernels/experts/shared_state.hpp"
#include "native/kernels/quantise/codes.hpp"
#include "native/ptx/discard.hpp"

namespace glm::kernels::mixture {

constexpr int32_t kLaneValues = 4;
constexpr int32_t kWarpValues = kLaneValues * kWarpThreads;

struct Values {
  float at[kLaneValues];
};

__device__ inline float4 hidden_values(const float* row, int32_t begin,
                                       int32_t width) {
  int32_t inside = begin < width ? begin : 0;
  return __ldcg(reinterpret_cast<const float4*>(row + inside));
}

__device__ inline Values values_inside(const float4& v, int32_t begin,
                                       int32_t width) {
  Values values = {{v.x, v.y, v.z, v.w}};
#pragma unroll
  for (int32_t i = 0; i < kLaneValues; ++i)
    values.at[i] = begin + i < width ? values.at[i] : 0.0f;
  return values;
}

__device__ inline float with_largest(float largest, const Values& values) {
#pragma unroll
  for (int32_t i = 0; i < kLaneValues; ++i)
    largest = fmaxf(largest, fabsf(values.at[i]));
  return largest;
}

constexpr int32_t kRowParts = 12;

struct RowValues {
  Values part[kRowParts];

  __device__ RowValues(const float* row, int32_t first, int32_t width) {
    float4 raw[kRowParts];
#pragma unroll
    for (int32_t i = 0; i < kRowParts; ++i)
      raw[i] = hidden_values(row, first + i * kWarpValues, width);
    __syncwarp(__activemask());
#pragma unroll
    for (int32_t i = 0; i < kRowParts; ++i)
      part[i] = values_inside(raw[i], first + i * kWarpValues, width);
  }
  __device__ float largest() const {
    float result = 0.0f;
#pragma unroll
    for (int32_t i = 0; i < kRowParts; ++i)
      result = with_largest(result, part[i]);
    return result;
  }
};

__device__ inline const float* hidden_row(const ExpertsParameters& p,
                                          int32_t assignment) {
  return p.hidden + int64_t{assignment} * p.hidden_stride;
}

template <int32_t dtype>
__device__ inline int32_t padded_width(int32_t width) {
  constexpr int32_t kTileValues = kTileRowBytes / dtype_bytes(dtype);
  return (width + kTileValues - 1) / kTileValues * kTileValues;
}

template <typename CodeAt>
__device__ inline uint32_t packed(const CodeAt& code_at) {
  uint32_t low = encode_pair(code_at(0), code_at(1));
  uint32_t high = encode_pair(code_at(2), code_at(3));
  return low | high << 16;
}

template <bool is_plain>
__device__ inline uint32_t packed_codes(const Values& values,
                                        const RowQuotient& quotient) {
  float code[kLaneValues];
#pragma unroll
  for (int32_t i = 0; i < kLaneValues; ++i)
    code[i] =
        is_plain ? quotient.plain(values.at[i]) : quotient.exact(values.at[i]);
  return packed([&](int32_t i) { return code[i]; });
}

template <bool is_plain>
__device__ inline void store_codes(uint8_t* codes, int32_t begin,
                                   int32_t padded, const RowValues& values,
                                   const RowQuotient& quotient) {
  uint32_t packed[kRowParts];
#pragma unroll
  for (int32_t i = 0; i < kRowParts; ++i)
    packed[i] = packed_codes<is_plain>(values.part[i], quotient);
#pragma unroll
  for (int32_t i = 0; i < kRowParts; ++i)
    if (begin + i * kWarpValues < padded)
      *reinterpret_cast<uint32_t*>(codes + begin + i * kWarpValues) = packed[i];
}

__device__ inline uint2 bfloat16_values(const Values& v) {
  __nv_bfloat162 pairs[2] = {__floats2bfloat162_rn(v.at[0], v.at[1]),
                             __floats2bfloat162_rn(v.at[2], v.at[3])};
  return *reinterpret_cast<uint2*>(pairs);
}

__device__ inline void store_bfloat16(uint8_t* codes, int32_t begin,
                                      const Values& values) {
  *reinterpret_cast<uint2*>(codes + begin * sizeof(__nv_bfloat16)) =
      bfloat16_values(values);
}

template <int32_t dtype>
__device__ inline void store_values(uint8_t* codes, int32_t begin,
                                    int32_t padded, const RowValues& values,
                                    const RowQuotient& quotient) {
  if constexpr (dtype == GLM_DTYPE_F8_E4M3) {
    if (quotient.is_plain())
      store_codes<true>(codes, begin, padded, values, quotient);
    else
      store_codes<false>(codes, begin, padded, values, quotient);
  } else {
#pragma unroll
    for (int32_t i = 0; i < kRowParts; ++i)
      if (begin + i * kWarpValues < padded)
        store_bfloat16(codes, begin + i * kWarpValues, values.part[i]);
  }
}

__device__ inline float scale_of(float largest_of_lane) {
  return row_scale_of(__uint_as_float(
      __reduce_max_sync(kWholeWarp, __float_as_uint(largest_of_lane))));
}

__device__ inline void discard_row(const float* row, int32_t first,
                                   int32_t width) {
  __syncwarp();
  if (first % kLineValues != 0) return;
  for (int32_t begin = first; begin < width; begin += kWarpValues)
    ptx::discard_line(row + begin);
}

template <int32_t dtype>
__device__ inline void encode_row(const ExpertsParameters& p, int32_t width,
                                  int32_t assignment, int32_t first) {
  constexpr int32_t kSpan = kRowParts * kWarpValues;
  const float* row = hidden_row(p, assignment);
  uint8_t* codes = p.codes + assignment * p.encoded.row_stride;
  int32_t padded = padded_width<dtype>(width);
  RowValues values(row, first, width);
  float largest = values.largest();
  for (int32_t begin = first + kSpan; begin < width; begin += kSpan)
    largest = fmaxf(largest, RowValues(row, begin, width).largest());
  float scale = scale_of(largest);
  if (first == 0) p.code_scale[assignment] = scale;
  RowQuotient quotient(scale);
  for (int32_t begin = first;;) {
    store_values<dtype>(codes, begin, padded, values, quotient);
    begin += kSpan;
    if (begin >= padded) break;
    values = RowValues(row, begin, width);
  }
  if (p.discards_rows) discard_row(row, first, width);
}

template <int32_t dtype>
__device__ inline void encode_list(const Frame& frame, const ExpertList& list,
                                   int32_t width, int32_t warp, int32_t lane) {
  const uint16_t* order = frame.order + list.begin;
  for (int32_t row = warp; row < list.count; row += kFinishWarps)
    encode_row<dtype>(frame.p, width, order[row], lane * kLaneValues);
}

constexpr int32_t kFinishValues = kFinishThreads * kLaneValues;
constexpr int32_t kHeldQuads = 2;

struct FinishQuads {
  float4 quad[kHeldQuads];

  __device__ FinishQuads(const float* row, int32_t thread, int32_t width) {
#pragma unroll
    for (int32_t i = 0; i < kHeldQuads; ++i)
      quad[i] =
          hidden_values(row, thread * kLaneValues + i * kFinishValues, width);
  }
};

__device__ inline float scale_of_finish_warps(SharedState& shared, int32_t half,
                                              int32_t thread, float largest) {
  uint32_t (&peaks)[kFinishWarps] = shared.peaks[half];
  uint32_t peak = __reduce_max_sync(kWholeWarp, __float_as_uint(largest));
  if (thread % kWarpThreads == 0) peaks[thread / kWarpThreads] = peak;
  meet_finish_warps();
#pragma unroll
  for (int32_t i = 0; i < kFinishWarps; ++i) peak = max(peak, peaks[i]);
  return row_scale_of(__uint_as_float(peak));
}

template <int32_t dtype>
__device__ inline void store_quad(uint8_t* codes, int32_t begin,
                                  const Values& values,
                                  const RowQuotient& quotient) {
  if constexpr (dtype == GLM_DTYPE_F8_E4M3) {
    *reinterpret_cast<uint32_t*>(codes + begin) =
        packed([&](int32_t i) { return quotient(values.at[i]); });
  } else {
    store_bfloat16(codes, begin, values);
  }
}

template <int32_t dtype>
__device__ inline void encode_row_of_few(const Frame& frame, int32_t width,
                                         int32_t assignment, int32_t half,
                                         int32_t thread,
                                         const FinishQuads& own) {
  const ExpertsParameters& p = frame.p;
  const float* row = hidden_row(p, assignment);
  uint8_t* codes = p.codes + assignment * p.encoded.row_stride;
  int32_t padded = padded_width<dtype>(width);
  auto values_at = [&](int32_t round) {
    int32_t begin = thread * kLaneValues + round * kFinishValues;
    float4 quad = round == 0   ? own.quad[0]
                  : round == 1 ? own.quad[1]
                               : hidden_values(row, begin, width);
    return values_inside(quad, begin, width);
  };
  int32_t rounds = static_cast<int32_t>(ceil_divide(padded, kFinishValues));
  float largest = 0.0f;
#pragma unroll 1
  for (int32_t round = 0; round < rounds; ++round)
    largest = fmaxf(largest, with_largest(0.0f, values_at(round)));
  float scale = scale_of_finish_warps(frame.shared, half, thread, largest);
  if (thread == 0) p.code_scale[assignment] = scale;
  RowQuotient quotient(scale);
#pragma unroll 1
  for (int32_t round = 0; round < rounds; ++round) {
    int32_t begin = thread * kLaneValues + round * kFinishValues;
    if (begin < padded)
      store_quad<dtype>(codes, begin, values_at(round), quotient);
  }
}

template <int32_t dtype>
__device__ inline void encode_few_rows(const Frame& frame,
                                       const ExpertList& list, int32_t width,
                                       int32_t thread) {
  const uint16_t* order = frame.order + list.begin;
  FinishQuads own(hidden_row(frame.p, order[0]), thread, width);
#pragma unroll 1
  for (int32_t row = 0; row < list.count; ++row) {
    int32_t next = order[min(row + 1, list.count - 1)];
    FinishQuads coming(hidden_row(frame.p, next), thread, width);
    encode_row_of_few<dtype>(frame, width, order[row], row % 2, thread, own);
    own = coming;
  }
}

}
