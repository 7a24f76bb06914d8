#include "native/kernels/stream/product_plan.hpp"

#include <algorithm>
#include <limits>
#include <string>

#include "native/base/failure.hpp"

namespace glm::kernels::stream {

namespace {

constexpr int32_t kPlannedClusters[kMaxSplit] = {132, 66, 39, 30,
                                                 22,  17, 15, 15};
constexpr int32_t kMinStages = 4;
constexpr int32_t kManyRounds = 8;
constexpr int64_t kTileCost[kMaxWarpgroups] = {10, 16};
constexpr int64_t kRoundCost = 24;
constexpr int64_t kExchangeCost = 12;
constexpr int64_t kPeerCost = 1;
constexpr int64_t kChunkCost = int64_t{1} << 40;
constexpr int32_t kReciprocalUnit = 65536;

bool holds_residents(const ProductPlan& plan) {
  return shared_layout(plan, kMaxResidentColumns, kManyRounds).is_deep;
}

int64_t plan_cost(const ProductPlan& plan) {
  int64_t rounds =
      ceil_divide(plan.num_units, kPlannedClusters[plan.split - 1]);
  int64_t tiles = ceil_divide(plan.num_column_tiles, plan.split);
  int64_t cost =
      rounds * (tiles * kTileCost[plan.num_warpgroups - 1] + kRoundCost);
  if (plan.split > 1) cost += kExchangeCost + plan.split * kPeerCost;
  return cost + (holds_residents(plan) ? 0 : kChunkCost);
}

ProductShape product_shape(const ProductPlan& plan, int32_t columns) {
  ProductShape shape = {};
  shape.split = plan.split;
  shape.split_reciprocal =
      static_cast<int32_t>(ceil_divide(kReciprocalUnit, plan.split));
  shape.num_warpgroups = plan.num_warpgroups;
  shape.num_units = plan.num_units;
  shape.part_tiles = plan.num_column_tiles / plan.split;
  shape.num_longer_parts = plan.num_column_tiles % plan.split;
  shape.stage_bytes = plan.num_warpgroups * kWarpgroupBytes;
  int32_t pieces = window_tokens(columns) / kGroupTokens * plan.num_warpgroups *
                   kWarpgroupWarps;
  shape.peer_bytes =
      static_cast<int32_t>(ceil_divide(pieces, plan.split)) * kPieceBytes;
  shape.slot_bytes = shape.peer_bytes * plan.split;
  return shape;
}

}

ProductPlan plan_with(int32_t num_row_tiles, int32_t num_column_tiles,
                      int32_t split, int32_t num_warpgroups) {
  return {split, num_warpgroups,
          num_row_tiles * (kMaxWarpgroups / num_warpgroups), num_column_tiles};
}

ProductPlan plan_product(int32_t num_row_tiles, int32_t num_column_tiles) {
  ProductPlan best = plan_with(num_row_tiles, num_column_tiles, 1, 2);
  int64_t best_cost = std::numeric_limits<int64_t>::max();
  int32_t most_split = std::min(num_column_tiles, kMaxSplit);
  for (int32_t split = 1; split <= most_split; ++split) {
    for (int32_t warpgroups = 1; warpgroups <= kMaxWarpgroups; ++warpgroups) {
      ProductPlan plan =
          plan_with(num_row_tiles, num_column_tiles, split, warpgroups);
      if (plan_cost(plan) <= best_cost) {
        best = plan;
        best_cost = plan_cost(plan);
      }
    }
  }
  return best;
}

SharedLayout shared_layout(const ProductPlan& plan, int32_t columns,
                           int32_t num_rounds) {
  SharedLayout layout;
  ProductShape& shape = layout.shape;
  shape = product_shape(plan, columns);
  int32_t most_tiles = shape.part_tiles + (shape.num_longer_parts > 0 ? 1 : 0);
  int32_t num_windows = columns / window_tokens(columns);
  int32_t token_bytes = columns * kTileRowBytes;
  bool streams = streams_tokens(columns);
  while ((most_tiles - 1) >> shape.token_shift >= kTokenBarriers) {
    ++shape.token_shift;
  }
  shape.stage_stride = shape.stage_bytes + (streams ? token_bytes : 0);
  int64_t block = streams ? 0 : int64_t{most_tiles} * token_bytes;
  int64_t scales = columns * static_cast<int64_t>(sizeof(float));
  int64_t wanted = int64_t{num_rounds} * most_tiles;
  int64_t room = 0;
  shape.num_slots = std::min(num_rounds * num_windows, kMaxSlots);
  for (; shape.num_slots > 0; --shape.num_slots) {
    int64_t left = kSharedBudget - block - scales -
                   int64_t{shape.num_slots} * shape.slot_bytes;
    room = std::max<int64_t>(left, 0) / shape.stage_stride;
    if (room >= std::min<int64_t>(wanted, kMinStages)) break;
  }
  layout.is_deep = shape.num_slots > 0;
  shape.num_stages =
      static_cast<int32_t>(std::min({room, wanted, int64_t{kMaxStages}}));
  layout.bytes = block + scales + int64_t{shape.num_slots} * shape.slot_bytes +
                 int64_t{shape.num_stages} * shape.stage_stride;
  shape.block_offset = shape.num_stages * shape.stage_stride;
  shape.exchange_offset = static_cast<int32_t>(shape.block_offset + block);
  shape.scales_offset =
      shape.exchange_offset + shape.num_slots * shape.slot_bytes;
  return layout;
}

int32_t product_columns(const ProductPlan& plan, int32_t num_rows,
                        bool has_token_map) {
  int32_t fewest = static_cast<int32_t>(
      round_up(std::min(num_rows, kMaxColumns), kGroupTokens));
  for (int32_t columns = fewest; columns <= kMaxResidentColumns;
       columns += kGroupTokens) {
    if (shared_layout(plan, columns, kManyRounds).is_deep) return columns;
  }
  if (has_token_map && shared_layout(plan, kMaxColumns, kManyRounds).is_deep) {
    return kMaxColumns;
  }
  for (int32_t columns = kMaxResidentColumns; columns > 0;
       columns -= kGroupTokens) {
    if (shared_layout(plan, columns, kManyRounds).is_deep) return columns;
  }
  return 0;
}

int32_t chunk_columns(const char* where, const ProductPlan& plan,
                      bool has_token_map) {
  int32_t columns = product_columns(plan, kMaxColumns, has_token_map);
  if (columns > 0) return columns;
  throw Failure(GLM_NOT_SUPPORTED,
                std::string(where) + ": a matrix of " +
                    std::to_string(plan.num_column_tiles) +
                    " column tiles: eight rows of its input do not fit into "
                    "the shared memory of a multiprocessor");
}

}
