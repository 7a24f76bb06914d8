#pragma once

#include "native/kernels/attention/decode_fold.hpp"
#include "native/kernels/attention/decode_items.hpp"
#include "native/kernels/attention/decode_products.hpp"
#include "native/ptx/warp_arrival.hpp"

namespace glm::kernels::decode {

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
                                          const State<S>& state, int32_t group,
                                          int32_t number) {
  const int32_t warp = static_cast<int32_t>(threadIdx.x) / 32;
  const LanePlace place;
  ptx::barrier_wait(&shared.merge_empty, (number & 1) ^ 1);
  if (place.lane % 4 == 0) {
    shared.warp_weights[place.row(0)][warp] =
        make_float2(state.top[0], state.total[0]);
    shared.warp_weights[place.row(1)][warp] =
        make_float2(state.top[1], state.total[1]);
  }
#pragma unroll
  for (int32_t i = 0; i < S::kTiles * 2; ++i) {
    const int32_t part = i % 2;
    if (place.row(part) >= group) continue;
    const int32_t dim = Products<S>::dim_of(i / 2, place.lane);
    *merge_place(shared, warp, place.row(part), dim) =
        Products<S>::pair_of(state, i / 2, part);
  }
  ptx::warp_arrive(&shared.merge_full);
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
                                    int32_t back, int32_t row, int32_t dim,
                                    float4 values) {
  store_values(args,
               int64_t{item.segment - back} * args.num_heads +
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
struct PartWeights {
  static constexpr int32_t kRows = 32 / S::kWarps;

  float factor;
  float2 merged;

  __device__ static PartWeights of_rows(const Shared<S>& shared, int32_t row,
                                        int32_t step, int32_t group,
                                        int32_t first_warp) {
    const int32_t lane = static_cast<int32_t>(threadIdx.x) % 32;
    const int32_t warp = (first_warp + lane) & (S::kWarps - 1);
    const int32_t own_row = min(row + lane / S::kWarps * step, group - 1);
    const float2 own = shared.warp_weights[own_row][warp];
    PartWeights weights;
    float highest = own.x;
#pragma unroll
    for (int32_t i = 1; i < S::kWarps; i *= 2)
      highest = fmaxf(highest, __shfl_xor_sync(~0u, highest, i));
    weights.factor = relative_weight(own.x, highest);
    float total = __fmul_rn(own.y, weights.factor);
#pragma unroll
    for (int32_t i = 1; i < S::kWarps; i *= 2)
      total = __fadd_rn(total, __shfl_xor_sync(~0u, total, i));
    weights.merged = make_float2(highest, total);
    return weights;
  }
};

template <typename S>
__device__ __forceinline__ Folded merged_quad(Shared<S>& shared, int32_t row,
                                              int32_t dim, int32_t first_warp,
                                              const PartWeights<S>& weights,
                                              int32_t first_lane) {
  float4 quads[S::kWarps];
#pragma unroll
  for (int32_t i = 0; i < S::kWarps; ++i)
    quads[i] = *reinterpret_cast<const float4*>(
        merge_place(shared, (first_warp + i) & (S::kWarps - 1), row, dim));
  Folded own = {make_float4(0, 0, 0, 0), {}};
#pragma unroll
  for (int32_t i = 0; i < S::kWarps; ++i)
    add(own.sum, quads[i], __shfl_sync(~0u, weights.factor, first_lane + i));
  own.weight.x = __shfl_sync(~0u, weights.merged.x, first_lane);
  own.weight.y = __shfl_sync(~0u, weights.merged.y, first_lane);
  return own;
}

template <typename S>
__device__ void store_partial(const Arguments& args, int32_t slot, int32_t row,
                              int32_t dim, const Folded& folded) {
  const int64_t place = int64_t{slot} * args.group + row;
  __stcg(reinterpret_cast<float4*>(args.sums + place * S::kDims + dim),
         folded.sum);
  if (dim == 0) __stcg(args.weights + place, folded.weight);
}

struct Split {
  const Item& item;
  int32_t number;
  int32_t back;
  int32_t slot;

  template <typename S>
  __device__ static Split of(const Arguments& args, const Item& item,
                             int32_t number, int32_t back) {
    return {item, number, back, slot_of<S>(args, item, number, back)};
  }

  __device__ bool has_before() const { return item.is_folded() && number > 0; }

  __device__ bool has_more() const {
    return item.is_folded() && !item.is_last(number);
  }
};

template <typename S>
__device__ void put_quad(const Arguments& args, Shared<S>& shared,
                         const Split& split, int32_t row, int32_t dim,
                         const Folded& folded) {
  if (split.has_more()) {
    *reinterpret_cast<float4*>(&shared.folded_sums[split.back][row][dim]) =
        folded.sum;
    if (dim == 0) shared.folded_weights[split.back][row] = folded.weight;
  } else if (split.item.is_whole()) {
    const float scale = scale_of<S>(args.value_scale, split.item.kv_head);
    store_output(args, split.item, split.back, row, dim,
                 times(folded.sum, inverse_total(folded.weight.y) * scale));
  } else {
    store_partial<S>(args, split.slot, row, dim, folded);
  }
}

template <typename S>
__device__ __forceinline__ void merge_row(const Arguments& args,
                                          Shared<S>& shared, const Split& split,
                                          int32_t first_warp, int32_t row,
                                          const PartWeights<S>& weights,
                                          int32_t first_lane) {
  const float2 before = shared.folded_weights[split.back][row];
  __syncwarp();
#pragma unroll
  for (int32_t quad = 0; quad < S::kLaneQuads; ++quad) {
    const int32_t dim = quad * 128 + static_cast<int32_t>(threadIdx.x) % 32 * 4;
    const int32_t place = min(dim, S::kDims - 4);
    Folded own =
        merged_quad(shared, row, place, first_warp, weights, first_lane);
    if (split.has_before())
      own = fold({*reinterpret_cast<const float4*>(
                      &shared.folded_sums[split.back][row][place]),
                  before},
                 own);
    if (dim < S::kDims) put_quad(args, shared, split, row, dim, own);
  }
}

template <typename S>
__device__ __forceinline__ void merge_split(const Arguments& args,
                                            Shared<S>& shared,
                                            const Split& split,
                                            int32_t first_warp,
                                            int32_t first_row, int32_t step) {
  constexpr int32_t kRows = PartWeights<S>::kRows;
  for (int32_t base = first_row; base < args.group; base += kRows * step) {
    const auto weights =
        PartWeights<S>::of_rows(shared, base, step, args.group, first_warp);
    const int32_t end = min(base + kRows * step, args.group);
    int32_t first_lane = 0;
#pragma unroll 1
    for (int32_t row = base; row < end; row += step) {
      merge_row(args, shared, split, first_warp, row, weights, first_lane);
      first_lane += S::kWarps;
    }
  }
}

}
