#ifndef GLM_KERNELS_ATTENTION_DECODE_MERGE_HPP
#define GLM_KERNELS_ATTENTION_DECODE_MERGE_HPP

#include "native/kernels/attention/decode_items.hpp"
#include "native/kernels/attention/decode_products.hpp"
#include "native/ptx/warp_matrix.hpp"

namespace glm::kernels::decode {

constexpr int32_t kComputeBarrier = 1;

template <int32_t halves>
__device__ void meet_warps() {
  ptx::meet<kComputeBarrier, Shape<halves>::kComputeThreads>();
}

__device__ inline float relative_weight(float top, float highest) {
  return top == -INFINITY ? 0.0f : ptx::power_of_two(top - highest);
}

template <int32_t halves>
__device__ float highest_of(const Shared<halves>& shared, int32_t row) {
  float highest = -INFINITY;
#pragma unroll
  for (int32_t i = 0; i < Shape<halves>::kWarps; ++i)
    highest = fmaxf(highest, shared.warp_weights[i][row].x);
  return highest;
}

template <int32_t halves>
__device__ float2 row_weight(const Shared<halves>& shared, int32_t row) {
  const float highest = highest_of<halves>(shared, row);
  float total = 0.0f;
#pragma unroll
  for (int32_t i = 0; i < Shape<halves>::kWarps; ++i) {
    const float2 weight = shared.warp_weights[i][row];
    total += weight.y * relative_weight(weight.x, highest);
  }
  return make_float2(highest, total);
}

struct LanePlace {
  int32_t lane = static_cast<int32_t>(threadIdx.x) % 32;

  __device__ int32_t row(int32_t part) const { return lane / 4 + part * 8; }
  __device__ int32_t dim(int32_t tile) const { return tile * 8 + lane % 4 * 2; }
};

template <int32_t halves>
__device__ float2* merge_place(Shared<halves>& shared, int32_t buffer,
                               int32_t row, int32_t dim) {
  return reinterpret_cast<float2*>(
      &shared.merged[buffer][row * kMergeStride + dim]);
}

template <int32_t halves>
__device__ void write_half(Shared<halves>& shared, const State<halves>& state,
                           int32_t half, int32_t buffer) {
  const LanePlace place;
#pragma unroll
  for (int32_t tile = 0; tile < 8; ++tile) {
    const auto& sums = state.sums[half * 8 + tile];
#pragma unroll
    for (int32_t part = 0; part < 2; ++part)
      *merge_place(shared, buffer, place.row(part), place.dim(tile)) =
          make_float2(sums[part * 2], sums[part * 2 + 1]);
  }
}

struct MergeFactors {
  float own[2];
  float other[2];
};

template <int32_t halves>
__device__ MergeFactors merge_factors(const Shared<halves>& shared,
                                      const State<halves>& state,
                                      int32_t warp) {
  const LanePlace place;
  MergeFactors factors;
#pragma unroll
  for (int32_t part = 0; part < 2; ++part) {
    const int32_t row = place.row(part);
    const float highest = highest_of<halves>(shared, row);
    factors.own[part] = relative_weight(state.top[part], highest);
    factors.other[part] = 0.0f;
    if constexpr (Shape<halves>::kWarps > kMergeBuffers)
      factors.other[part] = relative_weight(
          shared.warp_weights[warp + kMergeBuffers][row].x, highest);
  }
  return factors;
}

template <int32_t halves>
__device__ void add_half(Shared<halves>& shared, State<halves>& state,
                         int32_t half, int32_t warp,
                         const MergeFactors& factors) {
  const LanePlace place;
#pragma unroll
  for (int32_t tile = 0; tile < 8; ++tile) {
    auto& sums = state.sums[half * 8 + tile];
#pragma unroll
    for (int32_t part = 0; part < 2; ++part) {
      float2 added = make_float2(0, 0);
      if (Shape<halves>::kWarps > kMergeBuffers)
        added = *merge_place(shared, warp, place.row(part), place.dim(tile));
#pragma unroll
      for (int32_t i = 0; i < 2; ++i) {
        float& sum = sums[part * 2 + i];
        sum = sum * factors.own[part] +
              (i == 0 ? added.x : added.y) * factors.other[part];
      }
    }
  }
}

template <int32_t halves>
__device__ void share_weights(Shared<halves>& shared,
                              const State<halves>& state) {
  const int32_t warp = static_cast<int32_t>(threadIdx.x) / 32;
  const LanePlace place;
  const int32_t part = place.lane % 4;
  if (part >= 2) return;
  shared.warp_weights[warp][place.row(part)] =
      part == 0 ? make_float2(state.top[0], state.total[0])
                : make_float2(state.top[1], state.total[1]);
}

__device__ inline void store_output(const Arguments& args, const Item& item,
                                    int32_t row, int32_t dim, float4 values) {
  const int64_t head = int64_t{item.segment} * args.num_heads +
                       int64_t{item.kv_head} * args.group + row;
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

template <int32_t halves>
__device__ void store_half(const Arguments& args, Shared<halves>& shared,
                           const Item& item, int32_t half) {
  using S = Shape<halves>;
  constexpr int32_t kQuads = kHalfDims / 4;
  const int64_t base = int64_t{item.partial} * args.group;
  for (int32_t i = static_cast<int32_t>(threadIdx.x); i < args.group * kQuads;
       i += S::kComputeThreads) {
    const int32_t row = i / kQuads;
    const int32_t place = i % kQuads * 4;
    const int32_t dim = half * kHalfDims + place;
    const float2 weight = row_weight<halves>(shared, row);
    float4 sum = make_float4(0, 0, 0, 0);
#pragma unroll
    for (int32_t buffer = 0; buffer < kMergeBuffers; ++buffer)
      add(sum,
          *reinterpret_cast<const float4*>(
              merge_place(shared, buffer, row, place)),
          1.0f);
    if (item.num_chunks == 1) {
      store_output(args, item, row, dim, times(sum, inverse_total(weight.y)));
      continue;
    }
    __stcg(reinterpret_cast<float4*>(args.sums + (base + row) * S::kDims + dim),
           sum);
    if (dim == 0) __stcg(args.weights + base + row, weight);
  }
}

template <int32_t halves>
__device__ void store_item(const Arguments& args, Shared<halves>& shared,
                           const Item& item, State<halves>& state) {
  const int32_t warp = static_cast<int32_t>(threadIdx.x) / 32;
  share_weights(shared, state);
  MergeFactors factors;
#pragma unroll
  for (int32_t half = 0; half < halves; ++half) {
    if (warp >= kMergeBuffers)
      write_half(shared, state, half, warp - kMergeBuffers);
    meet_warps<halves>();
    if (warp < kMergeBuffers) {
      if (half == 0) factors = merge_factors(shared, state, warp);
      add_half(shared, state, half, warp, factors);
      write_half(shared, state, half, warp);
    }
    meet_warps<halves>();
    store_half(args, shared, item, half);
    meet_warps<halves>();
  }
}

__device__ inline int32_t arrive(const Arguments& args, const Item& item) {
  int32_t* arrivals =
      args.arrivals + int64_t{item.segment} * args.num_kv_heads + item.kv_head;
  int32_t before;
  asm volatile("atom.acq_rel.gpu.global.add.s32 %0, [%1], 1;"
               : "=r"(before)
               : "l"(arrivals)
               : "memory");
  const bool is_last = before + 1 == item.num_chunks;
  if (is_last) *arrivals = 0;
  return is_last;
}

template <int32_t halves>
__device__ void combine_chunks(const Arguments& args, const Item& item) {
  using S = Shape<halves>;
  constexpr int32_t kQuads = S::kDims / 4;
  const int64_t step = int64_t{args.num_kv_heads} * args.group;
  const int64_t first = int64_t{item.partial} * args.group - item.chunk * step;
  for (int32_t i = static_cast<int32_t>(threadIdx.x); i < args.group * kQuads;
       i += S::kComputeThreads) {
    const int32_t row = i / kQuads;
    const int32_t dim = i % kQuads * 4;
    float highest = -INFINITY;
#pragma unroll 8
    for (int32_t chunk = 0; chunk < item.num_chunks; ++chunk)
      highest =
          fmaxf(highest, __ldcg(args.weights + first + row + chunk * step).x);
    float total = 0.0f;
    float4 sum = make_float4(0, 0, 0, 0);
#pragma unroll 8
    for (int32_t chunk = 0; chunk < item.num_chunks; ++chunk) {
      const int64_t partial = first + row + chunk * step;
      const float2 weight = __ldcg(args.weights + partial);
      const float factor = ptx::power_of_two(weight.x - highest);
      total += weight.y * factor;
      add(sum,
          __ldcg(reinterpret_cast<const float4*>(args.sums +
                                                 partial * S::kDims + dim)),
          factor);
    }
    store_output(args, item, row, dim, times(sum, inverse_total(total)));
  }
}

template <int32_t halves>
struct Combiner {
  const Arguments& args;
  Shared<halves>& shared;
  Item pending;
  bool has_pending = false;
  int32_t flag = 0;

  __device__ void finish(const Item& item, State<halves>& state) {
    store_item<halves>(args, shared, item, state);
    const bool completes = has_pending && shared.is_last[flag] != 0;
    const Item before = pending;
    has_pending = item.num_chunks > 1;
    pending = item;
    flag ^= 1;
    if (has_pending && threadIdx.x == 0)
      shared.is_last[flag] = arrive(args, item);
    if (completes) combine_chunks<halves>(args, before);
  }

  __device__ void finish_last() {
    if (!has_pending) return;
    meet_warps<halves>();
    if (shared.is_last[flag] != 0) combine_chunks<halves>(args, pending);
  }
};

}

#endif
