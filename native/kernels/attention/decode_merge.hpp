#ifndef GLM_KERNELS_ATTENTION_DECODE_MERGE_HPP
#define GLM_KERNELS_ATTENTION_DECODE_MERGE_HPP

#include "native/kernels/attention/decode_items.hpp"
#include "native/kernels/attention/decode_products.hpp"
#include "native/ptx/warp_arrival.hpp"
#include "native/ptx/warp_matrix.hpp"

namespace glm::kernels::decode {

__device__ inline float relative_weight(float top, float highest) {
  return top == -INFINITY ? 0.0f : ptx::power_of_two(top - highest);
}

struct LanePlace {
  int32_t lane = static_cast<int32_t>(threadIdx.x) % 32;

  __device__ int32_t row(int32_t part) const { return lane / 4 + part * 8; }
};

template <typename S>
__device__ float2* merge_place(Shared<S>& shared, int32_t buffer, int32_t row,
                               int32_t dim) {
  return reinterpret_cast<float2*>(
      &shared.merged[buffer][row * S::kMergeStride + dim]);
}

template <typename S>
__device__ __forceinline__ void hand_over(Shared<S>& shared,
                                          const State<S>& state,
                                          Cursor<1>& merges) {
  const int32_t warp = static_cast<int32_t>(threadIdx.x) / 32;
  const LanePlace place;
  ptx::barrier_wait(&shared.merge_empty, merges.parity ^ 1);
  if (place.lane % 4 == 0) {
    shared.warp_weights[warp][place.row(0)] =
        make_float2(state.top[0], state.total[0]);
    shared.warp_weights[warp][place.row(1)] =
        make_float2(state.top[1], state.total[1]);
  }
#pragma unroll
  for (int32_t i = 0; i < S::kTiles * 2; ++i) {
    const int32_t part = i % 2;
    const int32_t dim = Products<S>::dim_of(i / 2, place.lane);
    *merge_place(shared, warp, place.row(part), dim) =
        Products<S>::pair_of(state, i / 2, part);
  }
  ptx::warp_arrive(&shared.merge_full);
  merges.advance(1);
}

__device__ inline void store_values(const Arguments& args, int64_t head,
                                    int32_t dim, float4 values) {
  __nv_bfloat16* place = args.output + head * args.head_dim + dim;
  if (args.head_dim % 4 == 0) {
    if (dim < args.head_dim)
      *reinterpret_cast<uint2*>(place) =
          make_uint2(pack(values.x, values.y), pack(values.z, values.w));
    return;
  }
  const float each[4] = {values.x, values.y, values.z, values.w};
#pragma unroll
  for (int32_t i = 0; i < 4; ++i)
    if (dim + i < args.head_dim) place[i] = __float2bfloat16(each[i]);
}

__device__ inline void store_output(const Arguments& args, const Item& item,
                                    int32_t row, int32_t dim, float4 values) {
  store_values(args,
               int64_t{item.segment} * args.num_heads +
                   int64_t{item.kv_head} * args.group + row,
               dim, values);
}

__device__ inline float4 times(float4 values, float factor) {
  return make_float4(values.x * factor, values.y * factor, values.z * factor,
                     values.w * factor);
}

__device__ inline void add(float4& sum, float4 values, float factor) {
  sum.x += values.x * factor;
  sum.y += values.y * factor;
  sum.z += values.z * factor;
  sum.w += values.w * factor;
}

__device__ inline float inverse_total(float total) {
  return total == 0.0f ? 0.0f : 1.0f / total;
}

template <typename S>
__device__ float4 merged_quad(Shared<S>& shared, int32_t row, int32_t dim,
                              int32_t first_warp, float2& weight) {
  float2 weights[S::kWarps];
  float4 quads[S::kWarps];
  float highest = -INFINITY;
#pragma unroll
  for (int32_t i = 0; i < S::kWarps; ++i) {
    const int32_t warp = (first_warp + i) & (S::kWarps - 1);
    weights[i] = shared.warp_weights[warp][row];
    quads[i] =
        *reinterpret_cast<const float4*>(merge_place(shared, warp, row, dim));
    highest = fmaxf(highest, weights[i].x);
  }
  float4 sum = make_float4(0, 0, 0, 0);
  float total = 0.0f;
#pragma unroll
  for (int32_t i = 0; i < S::kWarps; ++i) {
    const float factor = relative_weight(weights[i].x, highest);
    total += weights[i].y * factor;
    add(sum, quads[i], factor);
  }
  weight = make_float2(highest, total);
  return sum;
}

template <typename S>
__device__ void merge_item(const Arguments& args, Shared<S>& shared,
                           const Item& item, int32_t first_warp, int32_t thread,
                           int32_t num_threads) {
  constexpr int32_t kQuads = S::kDims / 4;
  const int64_t base = int64_t{item.partial} * args.group;
  const float scale = scale_of<S>(args.value_scale, item.kv_head);
  for (int32_t i = thread; i < args.group * kQuads; i += num_threads) {
    const int32_t row = i / kQuads;
    const int32_t dim = i % kQuads * 4;
    float2 weight;
    const float4 sum = merged_quad<S>(shared, row, dim, first_warp, weight);
    if (item.num_chunks == 1) {
      store_output(args, item, row, dim,
                   times(sum, inverse_total(weight.y) * scale));
      continue;
    }
    __stcg(reinterpret_cast<float4*>(args.sums + (base + row) * S::kDims + dim),
           sum);
    if (dim == 0) __stcg(args.weights + base + row, weight);
  }
}

template <typename S>
__device__ void merge_last(const Arguments& args, Shared<S>& shared,
                           const Item& item, int32_t first_warp, int32_t thread,
                           uint32_t parity) {
  ptx::barrier_wait(&shared.merge_full, parity);
  merge_item<S>(args, shared, item, first_warp, thread,
                S::kWarps * 32 + kMergeThreads);
}

}

#endif
