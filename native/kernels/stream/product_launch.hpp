#ifndef GLM_KERNELS_STREAM_PRODUCT_LAUNCH_HPP
#define GLM_KERNELS_STREAM_PRODUCT_LAUNCH_HPP

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>

#include "native/base/cuda.hpp"
#include "native/kernels/context.hpp"
#include "native/kernels/stream/product_plan.hpp"
#include "native/kernels/stream/split_product.hpp"
#include "native/kernels/stream/token_map.hpp"

namespace glm::kernels::stream {

template <typename... Parameters>
int32_t max_active_clusters(const char* where, const LaunchShape& shape,
                            void (*kernel)(Parameters...)) {
  check(
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                           static_cast<int>(shape.shared_bytes)),
      where);
  cudaLaunchAttribute attribute;
  attribute.id = cudaLaunchAttributeClusterDimension;
  attribute.val.clusterDim.x = shape.cluster;
  attribute.val.clusterDim.y = 1;
  attribute.val.clusterDim.z = 1;
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(shape.cluster);
  config.blockDim = shape.block;
  config.dynamicSmemBytes = static_cast<size_t>(shape.shared_bytes);
  config.attrs = &attribute;
  config.numAttrs = 1;
  int clusters = 0;
  check(cudaOccupancyMaxActiveClusters(&clusters, kernel, &config), where);
  return std::max(clusters, 1);
}

template <int32_t dtype, int32_t columns, typename Output>
int32_t resident_clusters(const char* where, const ProductPlan& plan) {
  static std::array<std::atomic<int32_t>, kMaxSplit + 1> known{};
  std::atomic<int32_t>& count = known[plan.split];
  if (count == 0) {
    LaunchShape shape{dim3(1), dim3(kMaxThreads), kSharedBudget,
                      static_cast<uint32_t>(plan.split)};
    count = max_active_clusters(where, shape,
                                split_product<dtype, columns, Output>);
  }
  return count;
}

template <int32_t dtype, int32_t columns, typename Output>
void launch_product(const char* where, const Context& context,
                    const ProductPlan& plan, const ProductArgs& args) {
  int32_t resident = resident_clusters<dtype, columns, Output>(where, plan);
  int32_t rounds = static_cast<int32_t>(ceil_divide(plan.num_units, resident));
  int32_t clusters = static_cast<int32_t>(ceil_divide(plan.num_units, rounds));
  SharedLayout layout = shared_layout(plan, columns, rounds);
  CUtensorMap map = {};
  layout.shape.has_token_map = allows_token_map(args.tokens);
  if (layout.shape.has_token_map) map = token_map(where, args.tokens, columns);
  LaunchShape shape{dim3(static_cast<uint32_t>(clusters * plan.split)),
                    dim3(plan.num_warpgroups * kWarpgroupThreads +
                         kCombinerThreads + kWarpThreads),
                    layout.bytes, static_cast<uint32_t>(plan.split)};
  launch(where, context.stream, shape, split_product<dtype, columns, Output>,
         args, layout.shape, map);
}

template <int32_t dtype, typename Output>
void launch_chunk(const char* where, const Context& context,
                  const ProductPlan& plan, const ProductArgs& args) {
  int32_t columns = product_columns(plan, args.tokens.num_rows,
                                    allows_token_map(args.tokens));
  switch (columns / kGroupTokens) {
    case 1:
      return launch_product<dtype, 8, Output>(where, context, plan, args);
    case 2:
      return launch_product<dtype, 16, Output>(where, context, plan, args);
    case 3:
      return launch_product<dtype, 24, Output>(where, context, plan, args);
    case 4:
      return launch_product<dtype, 32, Output>(where, context, plan, args);
    case 5:
      return launch_product<dtype, 40, Output>(where, context, plan, args);
    case 6:
      return launch_product<dtype, 48, Output>(where, context, plan, args);
    case 7:
      return launch_product<dtype, 56, Output>(where, context, plan, args);
    case 8:
      return launch_product<dtype, 64, Output>(where, context, plan, args);
    default:
      return launch_product<dtype, 128, Output>(where, context, plan, args);
  }
}

}

#endif
