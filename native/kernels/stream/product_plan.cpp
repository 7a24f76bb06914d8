#include "native/kernels/stream/product_plan.hpp"

#include <algorithm>
#include <limits>

namespace glm::kernels::stream {

namespace {

constexpr int32_t kPlannedClusters[kMaxSplit] = {132, 66, 39, 30,
                                                 22,  17, 15, 15};
constexpr int32_t kColumnChoices[] = {8, 16, 32, 48, 64, 96, 128, 192, 256};
constexpr int32_t kHalves = kTileRows / kWarpgroupRows;
constexpr int32_t kEnoughStages = 4;
constexpr int64_t kPlannedTokenBytes = 16 * kTileRowBytes;
constexpr int64_t kMemoryRate = 4600;
constexpr int64_t kCacheRate = 5000;
constexpr int64_t kProcessorRate = 60;
constexpr int64_t kPicoseconds = 1000;
constexpr int64_t kExchangeCost = 300 * kPicoseconds;
constexpr int64_t kPartCost = 100 * kPicoseconds;

int64_t unit_bytes(const ProductPlan& plan) {
  return plan.is_broad ? kWarpgroupBytes : kTileBytes;
}

int64_t plan_cost(const ProductPlan& plan) {
  int64_t rounds =
      ceil_divide(plan.num_units, kPlannedClusters[plan.split - 1]);
  int64_t clusters = ceil_divide(plan.num_units, rounds);
  int64_t tiles = rounds * ceil_divide(plan.num_column_tiles, plan.split);
  int64_t weights = unit_bytes(plan);
  int64_t stage = weights + kPlannedTokenBytes;
  int64_t memory = plan.num_units * plan.num_column_tiles * weights *
                   kPicoseconds / kMemoryRate;
  int64_t cache =
      clusters * plan.split * tiles * stage * kPicoseconds / kCacheRate;
  int64_t fill = tiles * stage * kPicoseconds / kProcessorRate;
  int64_t exchange =
      plan.split > 1 ? kExchangeCost + plan.split * kPartCost : 0;
  return std::max({memory, cache, fill}) + exchange;
}

int64_t stage_bytes(const ProductPlan& plan, int32_t columns) {
  int64_t num_tokens = plan.is_broad ? 2 * columns : columns;
  return unit_bytes(plan) + num_tokens * kTileRowBytes;
}

int64_t exchange_bytes(const ProductPlan& plan, int32_t columns) {
  return ceil_divide(columns / kGroupTokens, plan.split) * kMultiplierWarps *
         (plan.split - 1) * kPieceBytes;
}

struct StagePlan {
  int64_t num_stages;
  bool reuses_stages;
};

StagePlan plan_stages(const ProductPlan& plan, int32_t columns,
                      int32_t num_rounds, int64_t budget) {
  int64_t most_tiles = ceil_divide(plan.num_column_tiles, plan.split);
  int64_t wanted = std::min(num_rounds * most_tiles, int64_t{kMaxStages});
  int64_t stride = stage_bytes(plan, columns);
  int64_t left = (budget - exchange_bytes(plan, columns)) / stride;
  bool is_enough = left >= std::min<int64_t>(wanted, kEnoughStages);
  if (is_enough || num_rounds > 1) return {std::min(left, wanted), false};
  return {std::min(budget / stride, wanted), plan.split > 1};
}

StagePlan plan_stages(const ProductPlan& plan, int32_t columns,
                      int32_t num_rounds) {
  if (columns <= kMostPairedColumns) {
    StagePlan half = plan_stages(plan, columns, num_rounds, kHalfSharedBudget);
    if (!half.reuses_stages) return half;
  }
  return plan_stages(plan, columns, num_rounds, kSharedBudget);
}

}

ProductPlan plan_with(int32_t num_row_tiles, int32_t num_column_tiles,
                      int32_t split, bool is_broad) {
  return {split, is_broad, num_row_tiles * (is_broad ? kHalves : 1),
          num_column_tiles};
}

ProductPlan plan_product(int32_t num_row_tiles, int32_t num_column_tiles) {
  ProductPlan best = plan_with(num_row_tiles, num_column_tiles, 1, false);
  int64_t best_cost = std::numeric_limits<int64_t>::max();
  int32_t most_split = std::min(num_column_tiles, kMaxSplit);
  for (int32_t split = 1; split <= most_split; ++split) {
    for (bool is_broad : {true, false}) {
      ProductPlan plan =
          plan_with(num_row_tiles, num_column_tiles, split, is_broad);
      if (plan_cost(plan) <= best_cost) {
        best = plan;
        best_cost = plan_cost(plan);
      }
    }
  }
  return best;
}

int32_t product_columns(const ProductPlan& plan, int32_t num_rows) {
  int64_t wanted = plan.is_broad ? ceil_divide(num_rows, 2) : num_rows;
  for (int32_t columns : kColumnChoices) {
    if (columns >= wanted) return columns;
  }
  return kMaxTokens;
}

ProductLayout product_layout(const ProductPlan& plan, int32_t columns,
                             int32_t num_rounds) {
  StagePlan stages = plan_stages(plan, columns, num_rounds);
  int64_t bytes = stages.num_stages * stage_bytes(plan, columns);
  int64_t exchange = exchange_bytes(plan, columns);
  ProductLayout layout = {};
  ProductShape& shape = layout.shape;
  shape.split = plan.split;
  shape.num_units = plan.num_units;
  shape.part_tiles = plan.num_column_tiles / plan.split;
  shape.num_longer_parts = plan.num_column_tiles % plan.split;
  shape.num_stages = static_cast<int32_t>(stages.num_stages);
  shape.reuses_stages = stages.reuses_stages;
  shape.exchange_offset =
      stages.reuses_stages ? 0 : static_cast<int32_t>(bytes);
  layout.bytes = std::max(bytes, shape.exchange_offset + exchange);
  return layout;
}

}
