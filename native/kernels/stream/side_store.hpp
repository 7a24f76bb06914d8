#ifndef GLM_KERNELS_STREAM_SIDE_STORE_HPP
#define GLM_KERNELS_STREAM_SIDE_STORE_HPP

#include <cuda_bf16.h>

#include <cstdint>

#include "native/kernels/stream/fragment_store.hpp"

namespace glm::kernels::stream {

__device__ inline void store_pair(float* output, float first, float second) {
  *reinterpret_cast<float2*>(output) = {first, second};
}

__device__ inline void store_pair(__nv_bfloat16* output, float first,
                                  float second) {
  *reinterpret_cast<__nv_bfloat162*>(output) =
      __floats2bfloat162_rn(first, second);
}

__device__ inline void store_one(float* output, float value) {
  *output = value;
}

__device__ inline void store_one(__nv_bfloat16* output, float value) {
  *output = __float2bfloat16_rn(value);
}

template <int32_t groups>
struct SideTerms {
  int2 channels[groups];
  FragmentTerms of[groups];

  __device__ SideTerms(const ProductArgs& args, const CutPlace& place) {
    int32_t row = place.row + place.lane % 4 * 2;
#pragma unroll
    for (int32_t group = 0; group < groups; ++group) {
      int32_t first = row + group * kPairRows;
      channels[group] = {place.channel(args, first),
                         place.channel(args, first + 1)};
      of[group] = {load_row_terms(args, channels[group].x),
                   load_row_terms(args, channels[group].y)};
    }
  }
};

template <typename Output, int32_t groups>
class SideStore {
 public:
  static constexpr int32_t kSums = groups * 4;

  __device__ SideStore(const ProductArgs& args, int32_t token, int32_t lane,
                       bool stores_words)
      : args_(args),
        lane_(lane),
        token_(token + lane / 4),
        stores_words_(stores_words) {}

  __device__ void store(const float (&total)[kSums],
                        const SideTerms<groups>& terms,
                        const float* token_scales) const {
    float low = token_scales[lane_ / 4];
    float high = token_scales[lane_ / 4 + kGroupTokens];
#pragma unroll
    for (int32_t group = 0; group < groups; ++group) {
      const float* sum = total + group * 4;
      const FragmentTerms& pair = terms.of[group];
      store_token(
          token_, terms.channels[group],
          {scaled(sum[0], low, pair.low), scaled(sum[1], low, pair.high)});
      store_token(
          token_ + kGroupTokens, terms.channels[group],
          {scaled(sum[2], high, pair.low), scaled(sum[3], high, pair.high)});
    }
  }

 private:
  __device__ static float scaled(float sum, float token_scale,
                                 const RowTerms& terms) {
    return __fmaf_rn(__fmul_rn(sum, token_scale), terms.scale, terms.bias);
  }

  __device__ void store_token(int32_t token, int2 channels,
                              float2 values) const {
    if (token >= args_.tokens.num_rows) return;
    Output* at =
        static_cast<Output*>(args_.output) + int64_t{token} * args_.rows;
    if (stores_words_ && channels.x >= 0) {
      return store_pair(at + channels.x, values.x, values.y);
    }
    if (channels.x >= 0) store_one(at + channels.x, values.x);
    if (channels.y >= 0) store_one(at + channels.y, values.y);
  }

  const ProductArgs& args_;
  int32_t lane_;
  int32_t token_;
  bool stores_words_;
};

}

#endif
