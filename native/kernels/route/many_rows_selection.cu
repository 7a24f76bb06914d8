#include "native/base/cuda.hpp"
#include "native/kernels/route/many_rows.hpp"
#include "native/kernels/route/selection.hpp"
#include "native/ptx/dependent_launch.hpp"

namespace glm::kernels::routing {
namespace {

constexpr int32_t kSelectionWarps = 8;

template <int32_t lane_experts>
__global__ void __launch_bounds__(kSelectionWarps* kWarpThreads)
    selection_kernel(const __grid_constant__ RouteParameters p,
                     const float* sums) {
  __shared__ __align__(16) float scores[kSelectionWarps][kMaxExperts];
  __shared__ int32_t chosen[kSelectionWarps][kMaxTopK];
  ptx::let_successor_start();
  ptx::wait_for_predecessor();
  int32_t warp = threadIdx.x / kWarpThreads;
  int32_t token = blockIdx.x * kSelectionWarps + warp;
  if (token >= p.num_tokens) return;
  int32_t num_rows = p.num_fragments * kFragmentExperts;
  select_experts<kBlocksOfTile, lane_experts>(
      p, token, p.selection_bias, sums + int64_t{token} * num_rows,
      int64_t{p.num_tokens} * num_rows, scores[warp], chosen[warp]);
}

}

void launch_selection(cudaStream_t stream, const RouteParameters& p,
                      const float* sums) {
  auto kernel = p.num_experts <= 4 * kWarpThreads ? selection_kernel<4>
                                                  : selection_kernel<8>;
  LaunchShape shape;
  shape.grid =
      dim3(static_cast<uint32_t>(ceil_divide(p.num_tokens, kSelectionWarps)));
  shape.block = dim3(kSelectionWarps * kWarpThreads);
  launch("route", stream, shape, kernel, p, sums);
}

}
