#ifndef GLM_KERNELS_ATTENTION_DECODE_PARTIALS_HPP
#define GLM_KERNELS_ATTENTION_DECODE_PARTIALS_HPP

#include "native/kernels/attention/decode_items.hpp"

namespace glm::kernels::decode {

__device__ inline int32_t slot_of_split(const Arguments& args, int32_t share,
                                        int32_t split_of_share) {
  return share * args.splits_of_share + split_of_share;
}

__device__ inline int32_t slot_of_split(const Arguments& args, const Item& item,
                                        int32_t split) {
  return slot_of_split(args, static_cast<int32_t>(blockIdx.x),
                       split - item.first_split);
}

__device__ inline int32_t slot_of_fold(const Arguments& args, int32_t share) {
  return static_cast<int32_t>(gridDim.x) * args.splits_of_share + share;
}

template <typename S>
__device__ int64_t partial_values(const Arguments& args) {
  return int64_t{args.group} * S::kPartialStride;
}

__device__ inline float output_factor(float total, float scale) {
  return total == 0.0f ? 0.0f : __fmul_rn(__frcp_rn(total), scale);
}

__device__ inline void store_pair(const Arguments& args, const Item& item,
                                  int32_t row, int32_t dim, const float2& sums,
                                  float factor) {
  const int64_t head = int64_t{item.segment} * args.num_heads +
                       int64_t{item.kv_head} * args.group + row;
  __nv_bfloat16* place = args.output + head * args.head_dim + dim;
  const __nv_bfloat162 pair = __floats2bfloat162_rn(__fmul_rn(sums.x, factor),
                                                    __fmul_rn(sums.y, factor));
  if (args.head_dim % 2 == 0) {
    if (dim < args.head_dim) *reinterpret_cast<__nv_bfloat162*>(place) = pair;
    return;
  }
  if (dim < args.head_dim) place[0] = pair.x;
  if (dim + 1 < args.head_dim) place[1] = pair.y;
}

}

#endif
