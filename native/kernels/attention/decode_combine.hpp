#ifndef GLM_KERNELS_ATTENTION_DECODE_COMBINE_HPP
#define GLM_KERNELS_ATTENTION_DECODE_COMBINE_HPP

#include "native/kernels/attention/decode_items.hpp"
#include "native/kernels/attention/decode_merge.hpp"
#include "native/ptx/grid_barrier.hpp"

namespace glm::kernels::decode {

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
                                       const Partials& partials, int32_t lane) {
  float highest = -INFINITY;
  for (int32_t base = 0; base < partials.count; base += 32)
    highest = fmaxf(highest, lane_weight(args, partials, base + lane).x);
  for (int32_t step = 16; step > 0; step /= 2)
    highest = fmaxf(highest, __shfl_xor_sync(~0u, highest, step));
  return highest;
}

template <int32_t halves>
__device__ void combine_row(const Arguments& args, const Partials& partials,
                            int64_t row) {
  constexpr int32_t kDims = Shape<halves>::kDims;
  const int32_t lane = static_cast<int32_t>(threadIdx.x) % 32;
  const float highest = highest_weight(args, partials, lane);
  for (int32_t dim = lane * 4; dim < (kDims + 127) / 128 * 128; dim += 128) {
    const int32_t place = min(dim, kDims - 4);
    float total = 0.0f;
    float4 sum = make_float4(0, 0, 0, 0);
    for (int32_t base = 0; base < partials.count; base += 32) {
      const float2 weight = lane_weight(args, partials, base + lane);
      const float own = relative_weight(weight.x, highest);
      const int32_t count = min(32, partials.count - base);
#pragma unroll 8
      for (int32_t i = 0; i < count; ++i) {
        const float factor = __shfl_sync(~0u, own, i);
        const int64_t partial = partials.first + (base + i) * partials.step;
        total += __shfl_sync(~0u, weight.y, i) * factor;
        add(sum,
            __ldcg(reinterpret_cast<const float4*>(args.sums + partial * kDims +
                                                   place)),
            factor);
      }
    }
    if (dim < kDims)
      store_values(args, row, dim, times(sum, inverse_total(total)));
  }
}

template <int32_t halves>
__device__ void combine_rows(const Arguments& args, const Segment* segments) {
  const int32_t warp = static_cast<int32_t>(threadIdx.x) / 32;
  const int64_t rows = int64_t{args.num_segments} * args.num_heads;
  const int64_t stride = int64_t{gridDim.x} * (Shape<halves>::kThreads / 32);
  for (int64_t row = int64_t{warp} * gridDim.x + blockIdx.x; row < rows;
       row += stride) {
    const int32_t segment = static_cast<int32_t>(row / args.num_heads);
    const int32_t head = static_cast<int32_t>(row % args.num_heads);
    const Partials partials = partials_of(args, segments, segment, head);
    if (partials.count > 1) combine_row<halves>(args, partials, row);
  }
}

template <int32_t halves>
__device__ void combine_chunks(const Arguments& args, Shared<halves>& shared) {
  const bool has_partials =
      shared.segments[args.num_segments].first_chunk > args.num_segments;
  if (!has_partials) return;
  __syncthreads();
  if (threadIdx.x == 0) ptx::meet_grid(args.grid_barrier, gridDim.x);
  __syncthreads();
  combine_rows<halves>(args, shared.segments);
}

}

#endif
