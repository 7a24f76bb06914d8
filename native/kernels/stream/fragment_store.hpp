#ifndef GLM_KERNELS_STREAM_FRAGMENT_STORE_HPP
#define GLM_KERNELS_STREAM_FRAGMENT_STORE_HPP

#include <cuda_bf16.h>

#include <cstdint>

#include "native/kernels/layout.hpp"
#include "native/kernels/stream/product_args.hpp"
#include "native/ptx/move_matrix.hpp"

namespace glm::kernels::stream {

struct RowTerms {
  float scale;
  float bias;
};

struct FragmentTerms {
  RowTerms low;
  RowTerms high;
};

__device__ inline float4 scale_fragment(const FragmentTerms& terms,
                                        const float* token_scales, float4 sum) {
  float2 scales = *reinterpret_cast<const float2*>(token_scales);
  return {
      __fmaf_rn(__fmul_rn(sum.x, scales.x), terms.low.scale, terms.low.bias),
      __fmaf_rn(__fmul_rn(sum.y, scales.y), terms.low.scale, terms.low.bias),
      __fmaf_rn(__fmul_rn(sum.z, scales.x), terms.high.scale, terms.high.bias),
      __fmaf_rn(__fmul_rn(sum.w, scales.y), terms.high.scale, terms.high.bias)};
}

struct FragmentPlace {
  int32_t row;
  int32_t token;
  int32_t lane;
};

__device__ inline RowTerms load_row_terms(const ProductArgs& args,
                                          int32_t row) {
  int32_t channel = logical_row(args.role, args.rows, row);
  bool has_scale = channel >= 0 && args.channel_scale;
  bool has_bias = channel >= 0 && args.bias;
  return {has_scale ? args.channel_scale[channel] : 1.0f,
          has_bias ? args.bias[channel] : 0.0f};
}

__device__ inline FragmentTerms load_terms(const ProductArgs& args,
                                           const FragmentPlace& place) {
  int32_t row = place.row + place.lane / 4;
  return {load_row_terms(args, row), load_row_terms(args, row + kPairRows)};
}

class WordStore {
 public:
  __device__ WordStore(const ProductArgs& args, const FragmentPlace& place)
      : is_odd_(place.lane % 2 == 1), step_(args.rows * kGroupTokens) {
    int32_t row =
        place.row + place.lane % 2 * kPairRows + place.lane % 4 / 2 * 4;
    int32_t token = place.token + place.lane / 4;
    int32_t channel = logical_row(args.role, args.rows, row);
    tokens_left_ = channel < 0 ? 0 : args.tokens.num_rows - token;
    at_ = static_cast<__nv_bfloat16*>(args.output) +
          int64_t{token} * args.rows + channel;
  }

  __device__ void store(int32_t group, float4 values) const {
    uint32_t low = ptx::transpose_matrix(pack(values.x, values.y));
    uint32_t high = ptx::transpose_matrix(pack(values.z, values.w));
    uint32_t received = __shfl_xor_sync(~0u, is_odd_ ? low : high, 1);
    uint2 words = {is_odd_ ? received : low, is_odd_ ? high : received};
    if (group * kGroupTokens >= tokens_left_) return;
    store_pair_of_words(at_ + int64_t{group} * step_, words);
  }

 private:
  __device__ static uint32_t pack(float first, float second) {
    __nv_bfloat162 pair = __floats2bfloat162_rn(first, second);
    return *reinterpret_cast<uint32_t*>(&pair);
  }

  __device__ static void store_pair_of_words(__nv_bfloat16* at, uint2 words) {
    asm volatile("st.global.v2.b32 [%0], {%1, %2};" ::"l"(at), "r"(words.x),
                 "r"(words.y)
                 : "memory");
  }

  bool is_odd_;
  int32_t step_;
  int32_t tokens_left_;
  __nv_bfloat16* at_;
};

template <typename Output>
class ValueStore {
 public:
  __device__ ValueStore(const ProductArgs& args, const FragmentPlace& place)
      : rows_(args.rows) {
    int32_t row = place.row + place.lane / 4;
    int32_t token = place.token + place.lane % 4 * 2;
    low_ = logical_row(args.role, args.rows, row);
    high_ = logical_row(args.role, args.rows, row + kPairRows);
    tokens_left_ = args.tokens.num_rows - token;
    at_ = static_cast<Output*>(args.output) + int64_t{token} * rows_;
  }

  __device__ void store(int32_t group, float4 values) const {
    int32_t token = group * kGroupTokens;
    Output* first = at_ + int64_t{token} * rows_;
    if (token < tokens_left_) store_row(first, values.x, values.z);
    if (token + 1 < tokens_left_) {
      store_row(first + rows_, values.y, values.w);
    }
  }

 private:
  __device__ void store_row(Output* token, float low, float high) const {
    if (low_ >= 0) store_value(token + low_, low);
    if (high_ >= 0) store_value(token + high_, high);
  }

  __device__ static void store_value(float* output, float value) {
    *output = value;
  }

  __device__ static void store_value(__nv_bfloat16* output, float value) {
    *output = __float2bfloat16_rn(value);
  }

  int32_t rows_;
  int32_t low_;
  int32_t high_;
  int32_t tokens_left_;
  Output* at_;
};

}

#endif
