#pragma once

#include <cuda_bf16.h>

#include <cstdint>

#include "native/collectives/peer/send_ahead.hpp"
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

  __device__ int32_t channel(const ProductArgs& args, int32_t packed) const {
    return logical_row(args.role, args.rows, packed);
  }
};

__device__ inline RowTerms load_row_terms(const ProductArgs& args,
                                          int32_t channel) {
  bool has_scale = channel >= 0 && args.channel_scale;
  bool has_bias = channel >= 0 && args.bias;
  return {has_scale ? args.channel_scale[channel] : 1.0f,
          has_bias ? args.bias[channel] : 0.0f};
}

__device__ inline FragmentTerms load_terms(const ProductArgs& args,
                                           const FragmentPlace& place) {
  int32_t row = place.row + place.lane / 4;
  return {load_row_terms(args, place.channel(args, row)),
          load_row_terms(args, place.channel(args, row + kPairRows))};
}

template <typename Output>
struct TransposedPlace {
  bool is_odd;
  int32_t step;
  int32_t tokens_left;
  Output* at;

  __device__ TransposedPlace(const ProductArgs& args,
                             const FragmentPlace& place)
      : is_odd(place.lane % 2 == 1), step(args.rows * kGroupTokens) {
    int32_t row =
        place.row + place.lane % 2 * kPairRows + place.lane % 4 / 2 * 4;
    int32_t token = place.token + place.lane / 4;
    int32_t channel = place.channel(args, row);
    tokens_left = channel < 0 ? 0 : args.tokens.num_rows - token;
    at = static_cast<Output*>(args.output) + int64_t{token} * args.rows +
         channel;
  }

  __device__ bool holds(int32_t group) const {
    return group * kGroupTokens < tokens_left;
  }

  __device__ int32_t token(const ProductArgs& args, int32_t group) const {
    return args.tokens.num_rows - tokens_left + group * kGroupTokens;
  }

  __device__ Output* address(int32_t group) const {
    return at + int64_t{group} * step;
  }

  __device__ uint32_t swap(uint32_t low, uint32_t high) const {
    return __shfl_xor_sync(~0u, is_odd ? low : high, 1);
  }
};

template <typename Output, bool sends>
class WordStore;

template <bool sends>
class WordStore<__nv_bfloat16, sends> {
 public:
  __device__ WordStore(const ProductArgs& args, const FragmentPlace& place)
      : args_(args), place_(args, place) {}

  __device__ void store(int32_t group, float4 values) const {
    uint32_t low = ptx::transpose_matrix(pack(values.x, values.y));
    uint32_t high = ptx::transpose_matrix(pack(values.z, values.w));
    uint32_t received = place_.swap(low, high);
    if (!place_.holds(group)) return;
    store_words(group, place_.address(group),
                make_uint2(place_.is_odd ? received : low,
                           place_.is_odd ? high : received));
  }

 private:
  __device__ static uint32_t pack(float first, float second) {
    __nv_bfloat162 pair = __floats2bfloat162_rn(first, second);
    return *reinterpret_cast<uint32_t*>(&pair);
  }

  __device__ void store_words(int32_t group, __nv_bfloat16* target,
                              uint2 words) const {
    if constexpr (sends)
      collectives::send_ahead(
          args_.peers, place_.token(args_, group),
          target - static_cast<__nv_bfloat16*>(args_.output), words);
    asm volatile("st.global.v2.b32 [%0], {%1, %2};" ::"l"(target), "r"(words.x),
                 "r"(words.y)
                 : "memory");
  }

  const ProductArgs& args_;
  TransposedPlace<__nv_bfloat16> place_;
};

template <bool sends>
class WordStore<float, sends> {
 public:
  __device__ WordStore(const ProductArgs& args, const FragmentPlace& place)
      : place_(args, place) {}

  __device__ void store(int32_t group, float4 values) const {
    uint2 low = transpose(values.x, values.y);
    uint2 high = transpose(values.z, values.w);
    uint32_t first = place_.swap(low.x, high.x);
    uint32_t second = place_.swap(low.y, high.y);
    if (!place_.holds(group)) return;
    bool is_odd = place_.is_odd;
    asm volatile(
        "st.global.v4.b32 [%0], {%1, %2, %3, %4};" ::"l"(place_.address(group)),
        "r"(is_odd ? first : low.x), "r"(is_odd ? second : low.y),
        "r"(is_odd ? high.x : first), "r"(is_odd ? high.y : second)
        : "memory");
  }

 private:
  static constexpr uint32_t kLowHalves = 0x5410;
  static constexpr uint32_t kHighHalves = 0x7632;

  __device__ static uint2 transpose(float first, float second) {
    uint32_t x = __float_as_uint(first);
    uint32_t y = __float_as_uint(second);
    uint32_t low = ptx::transpose_matrix(__byte_perm(x, y, kLowHalves));
    uint32_t high = ptx::transpose_matrix(__byte_perm(x, y, kHighHalves));
    return {__byte_perm(low, high, kLowHalves),
            __byte_perm(low, high, kHighHalves)};
  }

  TransposedPlace<float> place_;
};

template <typename Output>
class ValueStore {
 public:
  __device__ ValueStore(const ProductArgs& args, const FragmentPlace& place)
      : rows_(args.rows) {
    int32_t row = place.row + place.lane / 4;
    int32_t token = place.token + place.lane % 4 * 2;
    low_ = place.channel(args, row);
    high_ = place.channel(args, row + kPairRows);
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
