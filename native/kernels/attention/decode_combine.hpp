#ifndef GLM_KERNELS_ATTENTION_DECODE_COMBINE_HPP
#define GLM_KERNELS_ATTENTION_DECODE_COMBINE_HPP

#include "native/kernels/attention/decode_items.hpp"
#include "native/kernels/attention/decode_merge.hpp"
#include "native/ptx/grid_barrier.hpp"

namespace glm::kernels::decode {

constexpr int32_t kChunksAtOnce = 8;

struct Partials {
  int64_t first;
  int64_t step;
  int32_t count;
};

__device__ inline Partials partials_of(const Arguments& args,
                                       const Segment* segments, int32_t segment,
                                       int32_t head) {
  const int32_t first = segments[segment].first_chunk;
  return {int64_t{first} * args.num_heads + head, args.num_heads,
          segments[segment + 1].first_chunk - first};
}

__device__ inline float2 lane_weight(const Arguments& args,
                                     const Partials& partials, int32_t chunk) {
  if (chunk >= partials.count) return make_float2(-INFINITY, 0);
  return __ldcg(args.weights + partials.first + chunk * partials.step);
}

__device__ inline float highest_weight(const Arguments& args,
                                       const Partials& partials, int32_t lane,
                                       float highest) {
  for (int32_t base = 32; base < partials.count; base += 32)
    highest = fmaxf(highest, lane_weight(args, partials, base + lane).x);
  for (int32_t step = 16; step > 0; step /= 2)
    highest = fmaxf(highest, __shfl_xor_sync(~0u, highest, step));
  return highest;
}

template <typename S>
__device__ void load_quads(const Arguments& args, const Partials& partials,
                           int32_t begin, int32_t dim,
                           float4 (&quads)[kChunksAtOnce]) {
#pragma unroll
  for (int32_t i = 0; i < kChunksAtOnce; ++i) {
    const int64_t chunk = min(begin + i, partials.count - 1);
    const int64_t partial = partials.first + chunk * partials.step;
    quads[i] = __ldcg(
        reinterpret_cast<const float4*>(args.sums + partial * S::kDims + dim));
  }
}

template <typename S>
__device__ float4 combined_quad(const Arguments& args, const Partials& partials,
                                int32_t dim, float scale) {
  const int32_t lane = static_cast<int32_t>(threadIdx.x) % 32;
  float4 quads[kChunksAtOnce];
  load_quads<S>(args, partials, 0, dim, quads);
  float2 weight = lane_weight(args, partials, lane);
  const float highest = highest_weight(args, partials, lane, weight.x);
  float total = 0.0f;
  float4 sum = make_float4(0, 0, 0, 0);
  for (int32_t begin = 0; begin < partials.count; begin += kChunksAtOnce) {
    if (begin > 0) load_quads<S>(args, partials, begin, dim, quads);
    if (begin > 0 && begin % 32 == 0)
      weight = lane_weight(args, partials, begin + lane);
    const float own = relative_weight(weight.x, highest);
#pragma unroll
    for (int32_t i = 0; i < kChunksAtOnce; ++i) {
      const float factor = __shfl_sync(~0u, own, begin % 32 + i);
      const float share = __shfl_sync(~0u, weight.y, begin % 32 + i);
      if (begin + i >= partials.count) continue;
      total += share * factor;
      add(sum, quads[i], factor);
    }
  }
  return times(sum, inverse_total(total) * scale);
}

template <typename S>
__device__ void combine_row(const Arguments& args, const Partials& partials,
                            int64_t row, int32_t head) {
  constexpr int32_t kDims = S::kDims;
  const float scale = scale_of<S>(args.value_scale, head / args.group);
  const int32_t lane = static_cast<int32_t>(threadIdx.x) % 32;
#pragma unroll
  for (int32_t base = 0; base < kDims; base += 128) {
    const int32_t dim = base + lane * 4;
    const float4 quad =
        combined_quad<S>(args, partials, min(dim, kDims - 4), scale);
    if (dim < kDims) store_values(args, row, dim, quad);
  }
}

template <typename S>
__device__ void combine_rows(const Arguments& args, const Segment* segments) {
  const int32_t warp = static_cast<int32_t>(threadIdx.x) / 32;
  const int64_t rows = int64_t{args.num_segments} * args.num_heads;
  const int64_t stride = int64_t{gridDim.x} * (S::kThreads / 32);
  for (int64_t row = int64_t{warp} * gridDim.x + blockIdx.x; row < rows;
       row += stride) {
    const int32_t segment = static_cast<int32_t>(row / args.num_heads);
    const int32_t head = static_cast<int32_t>(row % args.num_heads);
    const Partials partials = partials_of(args, segments, segment, head);
    if (partials.count > 1) combine_row<S>(args, partials, row, head);
  }
}

template <typename S>
__device__ void combine_chunks(const Arguments& args, Shared<S>& shared) {
  const bool has_partials =
      shared.segments[args.num_segments].first_chunk > args.num_segments;
  if (!has_partials) return;
  __syncthreads();
  if (threadIdx.x == 0) ptx::meet_grid(args.grid_barrier, gridDim.x);
  __syncthreads();
  combine_rows<S>(args, shared.segments);
}

}

#endif
