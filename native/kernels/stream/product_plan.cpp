#include "native/kernels/stream/product_plan.hpp"

#include <algorithm>
#include <limits>
#include <string>

#include "native/base/failure.hpp"

namespace glm::kernels::stream {

namespace {

constexpr int32_t kPlannedMultiprocessors = 128;
constexpr int32_t kMinStages = 4;
constexpr int64_t kRoundCost = 6 * 1024;
constexpr int64_t kSplitCost = 1024;

int64_t exchange_bytes(const ProductPlan& plan, int32_t columns) {
  return int64_t{plan.split} * slice_tokens(columns, plan.split) *
         exchange_pitch(plan.num_warpgroups) *
         static_cast<int64_t>(sizeof(float));
}

int64_t plan_cost(const ProductPlan& plan, int32_t num_row_tiles,
                  int32_t num_column_tiles) {
  int64_t units = int64_t{num_row_tiles} * 2 / plan.num_warpgroups;
  int64_t clusters = kPlannedMultiprocessors / plan.split;
  int64_t rounds = ceil_divide(units, clusters);
  int64_t tiles = ceil_divide(num_column_tiles, plan.split);
  return rounds * (tiles * plan.num_warpgroups * kWarpgroupBytes + kRoundCost) +
         plan.split * kSplitCost;
}

}

ProductPlan plan_product(int32_t num_row_tiles, int32_t num_column_tiles) {
  ProductPlan best{1, 2};
  int64_t best_cost = std::numeric_limits<int64_t>::max();
  int32_t most_split = std::clamp(num_column_tiles, 1, kMaxSplit);
  for (int32_t split = 1; split <= most_split; ++split) {
    for (int32_t warpgroups = 1; warpgroups <= 2; ++warpgroups) {
      ProductPlan plan{split, warpgroups};
      int64_t cost = plan_cost(plan, num_row_tiles, num_column_tiles);
      if (cost <= best_cost) {
        best = plan;
        best_cost = cost;
      }
    }
  }
  return best;
}

void apply_plan(const ProductPlan& plan, int32_t num_row_tiles,
                ProductArgs& args) {
  args.split = plan.split;
  args.num_warpgroups = plan.num_warpgroups;
  args.num_units = num_row_tiles * 2 / plan.num_warpgroups;
}

SharedLayout shared_layout(const ProductPlan& plan, int32_t columns,
                           int32_t num_column_tiles) {
  SharedLayout layout;
  layout.most_tiles =
      static_cast<int32_t>(ceil_divide(num_column_tiles, plan.split));
  layout.fixed_bytes = int64_t{layout.most_tiles} * columns * kTileRowBytes +
                       columns * static_cast<int64_t>(sizeof(float)) +
                       exchange_bytes(plan, columns);
  int64_t room = kSharedBudget - layout.fixed_bytes;
  int64_t stage = int64_t{plan.num_warpgroups} * kWarpgroupBytes;
  layout.num_stages =
      static_cast<int32_t>(std::clamp<int64_t>(room / stage, 0, kMaxStages));
  return layout;
}

int32_t chunk_columns(const char* where, const ProductPlan& plan,
                      int32_t num_column_tiles) {
  for (int32_t columns = kMaxColumns; columns >= 8; columns -= 8) {
    if (shared_layout(plan, columns, num_column_tiles).num_stages >=
        kMinStages) {
      return columns;
    }
  }
  throw Failure(GLM_NOT_SUPPORTED,
                std::string(where) + ": a matrix of " +
                    std::to_string(num_column_tiles) +
                    " column tiles: eight rows of its input do not fit into "
                    "the shared memory of a multiprocessor");
}

}
