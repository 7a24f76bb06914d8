#pragma once

#include "native/kernels/attention/decode_items.hpp"
#include "native/ptx/approximate.hpp"

namespace glm::kernels::decode {

struct Folded {
  float4 sum;
  float2 weight;
};

__device__ inline float relative_weight(float top, float highest) {
  return top == -INFINITY ? 0.0f : ptx::approximate_exp2(top - highest);
}

__device__ inline float weighted(float before, float of_before, float next,
                                 float of_next) {
  return __fmaf_rn(next, of_next, __fmul_rn(before, of_before));
}

__device__ inline float4 weighted(float4 before, float of_before, float4 next,
                                  float of_next) {
  return make_float4(weighted(before.x, of_before, next.x, of_next),
                     weighted(before.y, of_before, next.y, of_next),
                     weighted(before.z, of_before, next.z, of_next),
                     weighted(before.w, of_before, next.w, of_next));
}

__device__ inline Folded fold(const Folded& before, const Folded& next) {
  const float highest = fmaxf(before.weight.x, next.weight.x);
  const float of_before = relative_weight(before.weight.x, highest);
  const float of_next = relative_weight(next.weight.x, highest);
  Folded result;
  result.sum = weighted(before.sum, of_before, next.sum, of_next);
  result.weight = make_float2(
      highest, weighted(before.weight.y, of_before, next.weight.y, of_next));
  return result;
}

__device__ inline int32_t slot_of_split(const Arguments& args, int32_t share,
                                        int32_t number) {
  return share * args.slots_of_share + number;
}

__device__ inline int32_t slot_of_fold(const Arguments& args, int32_t share,
                                       int32_t back) {
  return (share + 1) * args.slots_of_share - 1 - back;
}

template <typename S>
__device__ int32_t slot_of(const Arguments& args, const Item& item,
                           int32_t split, int32_t back) {
  const int32_t share = static_cast<int32_t>(blockIdx.x);
  return item.is_folded()
             ? slot_of_fold(args, share, back)
             : slot_of_split(
                   args, share,
                   (split - item.first_split) * rows_of<S>(item) + back);
}

}
