#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <string>

#include "native/base/cuda.hpp"
#include "native/kernels/context.hpp"
#include "native/kernels/stream/product_plan.hpp"
#include "native/kernels/stream/short_product.hpp"
#include "native/kernels/stream/split_product.hpp"
#include "native/kernels/stream/token_map.hpp"

namespace glm::kernels::stream {

template <typename... Parameters>
int32_t max_active_clusters(const char* where, const LaunchShape& shape,
                            void (*kernel)(Parameters...)) {
  allow_shared_bytes(where, reinterpret_cast<const void*>(kernel),
                     shape.shared_bytes);
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

template <typename Output>
bool stores_words(const ProductArgs& args) {
  int32_t segment = args.role == GLM_MATRIX_GATE_UP ? 2 * kPairRows : kPairRows;
  return args.rows % segment == 0 &&
         reinterpret_cast<uintptr_t>(args.output) % (4 * sizeof(Output)) == 0;
}

template <typename Layout>
void expect_sender(const char* where, const ProductArgs& args,
                   bool stores_words) {
  const bool sends = stores_words && Layout::kTokens <= kMostTokensSentAhead;
  if (args.peers.count > 0 && !sends)
    throw Failure(GLM_DEVICE_ERROR,
                  std::string(where) +
                      ": expected a kernel that sends its rows to the other "
                      "ranks, got one that does not");
}

template <int32_t dtype, typename Layout, typename Output>
int32_t resident_products(const char* where, int32_t split) {
  static std::array<std::atomic<int32_t>, kMaxSplit + 1> known{};
  std::atomic<int32_t>& count = known[split];
  if (count == 0) {
    LaunchShape shape{dim3(1), dim3(Layout::kThreads), kSharedBudget,
                      static_cast<uint32_t>(split)};
    count =
        max_active_clusters(where, shape, split_product<dtype, Layout, Output>);
  }
  return count;
}

template <int32_t dtype, typename Layout, typename Output>
void launch_product(const char* where, const Context& context,
                    const ProductPlan& plan, const ProductArgs& args) {
  int32_t resident =
      resident_products<dtype, Layout, Output>(where, plan.split);
  int32_t rounds = static_cast<int32_t>(ceil_divide(plan.num_units, resident));
  int32_t clusters = static_cast<int32_t>(ceil_divide(plan.num_units, rounds));
  ProductLayout layout = product_layout(plan, Layout::kColumns, rounds);
  layout.shape.stores_words = stores_words<Output>(args);
  expect_sender<Layout>(where, args, layout.shape.stores_words);
  layout.shape.has_token_map = allows_token_map(args.tokens);
  CUtensorMap map = {};
  if (layout.shape.has_token_map) {
    map = token_map(where, args.tokens, Layout::kTokens);
  }
  int64_t pieces = ceil_divide(args.tokens.num_rows, Layout::kTokens);
  LaunchShape shape{dim3(static_cast<uint32_t>(clusters * plan.split),
                         static_cast<uint32_t>(pieces)),
                    dim3(Layout::kThreads), layout.bytes,
                    static_cast<uint32_t>(plan.split)};
  launch(where, context.stream, shape, split_product<dtype, Layout, Output>,
         args, layout.shape, map);
}

template <int32_t dtype, UnitForm form, typename Output, int32_t columns,
          int32_t... wider>
void launch_columns(const char* where, const Context& context,
                    const ProductPlan& plan, const ProductArgs& args,
                    int32_t wanted) {
  if (wanted <= columns) {
    return launch_product<dtype, StageLayout<columns, form>, Output>(
        where, context, plan, args);
  }
  if constexpr (sizeof...(wider) > 0) {
    launch_columns<dtype, form, Output, wider...>(where, context, plan, args,
                                                  wanted);
  } else {
    throw Failure(GLM_DEVICE_ERROR, std::string(where) + ": expected at most " +
                                        std::to_string(columns) +
                                        " columns a pass, got " +
                                        std::to_string(wanted));
  }
}

template <typename Layout, int32_t most_tiles, typename Output>
int32_t resident_shorts(const char* where, int32_t split) {
  static std::array<std::atomic<int32_t>, kMaxSplit + 1> known{};
  std::atomic<int32_t>& count = known[split];
  if (count == 0) {
    LaunchShape shape{dim3(1), dim3(kMultiplierThreads), kSharedBudget,
                      static_cast<uint32_t>(split)};
    count = max_active_clusters(where, shape,
                                short_product<Layout, most_tiles, Output>);
  }
  return count;
}

template <typename Layout, int32_t most_tiles, typename Output>
bool launch_short(const char* where, const Context& context,
                  const ProductPlan& plan, const ProductArgs& args) {
  ProductLayout layout = product_layout(plan, Layout::kColumns, 1);
  int32_t resident =
      resident_shorts<Layout, most_tiles, Output>(where, plan.split);
  if (layout.shape.reuses_stages || plan.num_units > resident) return false;
  layout.shape.stores_words = stores_words<Output>(args);
  expect_sender<Layout>(where, args, layout.shape.stores_words);
  int64_t pieces = ceil_divide(args.tokens.num_rows, Layout::kTokens);
  LaunchShape shape{dim3(static_cast<uint32_t>(plan.num_units * plan.split),
                         static_cast<uint32_t>(pieces)),
                    dim3(kMultiplierThreads), layout.bytes,
                    static_cast<uint32_t>(plan.split)};
  launch(where, context.stream, shape,
         short_product<Layout, most_tiles, Output>, args, layout.shape);
  return true;
}

template <typename Output, int32_t most_tiles, int32_t columns,
          int32_t... wider>
bool launch_short_columns(const char* where, const Context& context,
                          const ProductPlan& plan, const ProductArgs& args,
                          int32_t wanted) {
  if (wanted <= columns) {
    return launch_short<StageLayout<columns, UnitForm::broad>, most_tiles,
                        Output>(where, context, plan, args);
  }
  if constexpr (sizeof...(wider) > 0) {
    return launch_short_columns<Output, most_tiles, wider...>(
        where, context, plan, args, wanted);
  }
  return false;
}

template <typename Output>
bool launch_if_short(const char* where, const Context& context,
                     const ProductPlan& plan, const ProductArgs& args,
                     int32_t wanted) {
  if (plan.form != UnitForm::broad || !allows_token_map(args.tokens)) {
    return false;
  }
  int64_t tiles = ceil_divide(plan.num_column_tiles, plan.split);
  if (tiles <= kFewShortTiles) {
    return launch_short_columns<Output, kFewShortTiles, 8, 16, 32>(
        where, context, plan, args, wanted);
  }
  if (tiles > kMostShortTiles) return false;
  return launch_short_columns<Output, kMostShortTiles, 8, 16>(
      where, context, plan, args, wanted);
}

template <int32_t dtype, typename Output>
void launch_plan(const char* where, const Context& context,
                 const ProductPlan& plan, const ProductArgs& args) {
  int32_t wanted = product_columns(plan, args.tokens.num_rows);
  if constexpr (dtype == GLM_DTYPE_F8_E4M3) {
    if (launch_if_short<Output>(where, context, plan, args, wanted)) return;
  }
  if (plan.form == UnitForm::broad) {
    return launch_columns<dtype, UnitForm::broad, Output, 8, 16, 32, 48, 64, 96,
                          128>(where, context, plan, args, wanted);
  }
  launch_columns<dtype, UnitForm::tall, Output, 8, 16, 32, 48, 64, 96, 128, 192,
                 256>(where, context, plan, args, wanted);
}

template <int32_t dtype, typename Output>
void launch_chunk(const char* where, const Context& context,
                  const ProductPlans& plans, const ProductArgs& args) {
  for (const ProductPlan& plan : plans) {
    launch_plan<dtype, Output>(where, context, plan, args);
  }
}

}
