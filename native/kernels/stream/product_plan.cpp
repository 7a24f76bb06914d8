#include "native/kernels/stream/product_plan.hpp"

#include <algorithm>
#include <limits>

namespace glm::kernels::stream {

namespace {

constexpr int32_t kPlannedClusters[kMaxSplit] = {132, 66, 39, 30,
                                                 22,  17, 15, 15};
constexpr int32_t kColumnChoices[] = {8, 16, 32, 48, 64, 96, 128, 192, 256};
constexpr int32_t kMostWaveTiles = 173;
constexpr int32_t kMostWholeTokens = 32;
constexpr int32_t kMostPieces = 4;
constexpr int32_t kEnoughStages = 4;
constexpr int64_t kBytesInFlight = 32 * 1024;
constexpr int64_t kFewRows = 16;
constexpr int64_t kManyRowsShare = 4;
constexpr int64_t kMemoryRate = 4600;
constexpr int64_t kCacheRate = 5000;
constexpr int64_t kProcessorRate = 60;
constexpr int64_t kSteadyRate = 45;
constexpr int64_t kExchangeRate = 22;
constexpr int64_t kPicoseconds = 1000;
constexpr int64_t kTallTileTime = 690 * kPicoseconds;
constexpr int64_t kBroadTileTime = 455 * kPicoseconds;
constexpr int64_t kExchangeCost = 300 * kPicoseconds;
constexpr int64_t kPartCost = 100 * kPicoseconds;
constexpr int64_t kLaunchCost = 3500 * kPicoseconds;

struct RowBand {
  int32_t first_tile;
  int32_t num_tiles;
};

int32_t unit_rows(UnitForm form) {
  return form == UnitForm::broad ? kWarpgroupRows : kTileRows;
}

int64_t unit_bytes(const ProductPlan& plan) {
  return int64_t{unit_rows(plan.form)} * kTileRowBytes;
}

struct PlannedWork {
  int64_t rounds;
  int64_t clusters;
  int64_t tiles;

  explicit PlannedWork(const ProductPlan& plan) {
    rounds = ceil_divide(plan.num_units, kPlannedClusters[plan.split - 1]);
    clusters = ceil_divide(plan.num_units, rounds);
    tiles = rounds * ceil_divide(plan.num_column_tiles, plan.split);
  }
};

int64_t few_rows_cost(const ProductPlan& plan) {
  PlannedWork work(plan);
  int64_t stage = unit_bytes(plan) + kFewRows * kTileRowBytes;
  int64_t memory = plan.num_units * plan.num_column_tiles * unit_bytes(plan) *
                   kPicoseconds / kMemoryRate;
  int64_t cache = work.clusters * plan.split * work.tiles * stage *
                  kPicoseconds / kCacheRate;
  int64_t rate = work.rounds > 1 ? kSteadyRate : kProcessorRate;
  int64_t fill = work.tiles * stage * kPicoseconds / rate;
  int64_t exchange =
      plan.split > 1 ? kExchangeCost + plan.split * kPartCost : 0;
  return std::max({memory, cache, fill}) + work.rounds * exchange;
}

int64_t many_rows_cost(const ProductPlan& plan) {
  PlannedWork work(plan);
  bool is_broad = plan.form == UnitForm::broad;
  int64_t tile = is_broad ? kBroadTileTime : kTallTileTime;
  int64_t sums = unit_bytes(plan) / kTileRowBytes * kMaxTokens *
                 static_cast<int64_t>(sizeof(float));
  int64_t sent = sums * (plan.split - 1) / plan.split;
  int64_t exchange =
      plan.split > 1 ? kExchangeCost + sent * kPicoseconds / kExchangeRate : 0;
  return work.tiles * tile + work.rounds * exchange;
}

int64_t plan_cost(const ProductPlan& plan) {
  return few_rows_cost(plan) + many_rows_cost(plan) / kManyRowsShare;
}

int64_t stage_bytes(const ProductPlan& plan, int32_t columns) {
  int64_t num_tokens = plan.form == UnitForm::broad ? 2 * columns : columns;
  return unit_bytes(plan) + num_tokens * kTileRowBytes;
}

bool keeps_own(const ProductPlan& plan, int32_t columns, int32_t num_rounds) {
  return plan.split > 1 && num_rounds == 1 &&
         columns / kGroupTokens > kMostEagerGroups;
}

int64_t exchange_bytes(const ProductPlan& plan, int32_t columns,
                       int32_t num_rounds) {
  int64_t pieces = ceil_divide(columns / kGroupTokens, plan.split);
  int64_t cells =
      keeps_own(plan, columns, num_rounds) ? plan.split : plan.split - 1;
  return pieces * kPartWarps * cells * kPieceBytes;
}

struct StagePlan {
  int64_t num_stages;
  bool is_enough;
  bool reuses_stages;
};

StagePlan plan_stages(const ProductPlan& plan, int32_t columns,
                      int32_t num_rounds, int64_t budget) {
  int64_t most_tiles = ceil_divide(plan.num_column_tiles, plan.split);
  int64_t wanted = std::min(num_rounds * most_tiles, int64_t{kMaxStages});
  int64_t stride = stage_bytes(plan, columns);
  int64_t left = (budget - exchange_bytes(plan, columns, num_rounds)) / stride;
  bool is_enough = left >= std::min<int64_t>(wanted, kEnoughStages);
  if (is_enough || num_rounds > 1 || plan.split == 1) {
    return {std::min(left, wanted), is_enough, false};
  }
  return {std::min(budget / stride, wanted), false, true};
}

StagePlan plan_stages(const ProductPlan& plan, int32_t columns,
                      int32_t num_rounds) {
  int64_t most_tiles = ceil_divide(plan.num_column_tiles, plan.split);
  if (columns <= kMostPairedColumns && plan.split > 1) {
    StagePlan half = plan_stages(plan, columns, num_rounds, kHalfSharedBudget);
    bool holds_all = half.num_stages == num_rounds * most_tiles;
    if (half.is_enough && holds_all) return half;
  }
  return plan_stages(plan, columns, num_rounds, kSharedBudget);
}

ProductPlan plan_with(const RowBand& band, int32_t num_column_tiles,
                      int32_t split, UnitForm form) {
  int32_t units_per_tile = kTileRows / unit_rows(form);
  return {split,
          form,
          band.first_tile * units_per_tile,
          band.num_tiles * units_per_tile,
          band.first_tile + band.num_tiles,
          num_column_tiles,
          1};
}

ProductPlan plan_band(const RowBand& band, int32_t num_column_tiles) {
  ProductPlan best = plan_with(band, num_column_tiles, 1, UnitForm::tall);
  int64_t best_cost = std::numeric_limits<int64_t>::max();
  int32_t most_split = std::min(num_column_tiles, kMaxSplit);
  for (int32_t split = 1; split <= most_split; ++split) {
    for (UnitForm form : {UnitForm::broad, UnitForm::tall}) {
      ProductPlan plan = plan_with(band, num_column_tiles, split, form);
      if (plan_cost(plan) <= best_cost) {
        best = plan;
        best_cost = plan_cost(plan);
      }
    }
  }
  return best;
}

ProductPlans plan_bands(const MatrixTiles& tiles) {
  int32_t last = tiles.num_row_tiles % kPlannedClusters[0];
  RowBand waves{0, tiles.num_row_tiles - last};
  ProductPlan whole =
      plan_band({0, tiles.num_row_tiles}, tiles.num_column_tiles);
  if (last == 0 || waves.num_tiles == 0) return {whole};
  ProductPlan first =
      plan_with(waves, tiles.num_column_tiles, 1, UnitForm::tall);
  ProductPlan second =
      plan_band({waves.num_tiles, last}, tiles.num_column_tiles);
  int64_t in_bands = plan_cost(first) + plan_cost(second) + kLaunchCost;
  if (plan_cost(whole) <= in_bands) return {whole};
  return {first, second};
}

bool is_wave(const MatrixTiles& tiles) {
  return tiles.num_row_tiles > kPlannedClusters[0] &&
         tiles.num_row_tiles <= kMostWaveTiles;
}

ProductPlans plan_wave(const MatrixTiles& tiles) {
  RowBand wave{0, kPlannedClusters[0]};
  RowBand rest{wave.num_tiles, tiles.num_row_tiles - wave.num_tiles};
  return {plan_with(wave, tiles.num_column_tiles, 1, UnitForm::tall),
          plan_with(rest, tiles.num_column_tiles, 1, UnitForm::tall)};
}

int32_t pieces_that_fit(const ProductPlan& plan) {
  int32_t beside = kPlannedClusters[plan.split - 1] / plan.num_units;
  return std::clamp(beside, 1, kMostPieces);
}

}

ProductPlans plan_product(const MatrixTiles& tiles, int32_t num_rows) {
  if (is_wave(tiles)) return plan_wave(tiles);
  ProductPlans plans = plan_bands(tiles);
  for (ProductPlan& plan : plans) {
    bool is_cut = plan.split > 1 && num_rows > kMostWholeTokens;
    plan.most_pieces = is_cut ? pieces_that_fit(plan) : 1;
  }
  return plans;
}

PartBands part_bands(const MatrixTiles& tiles) {
  if (is_wave(tiles)) return {};
  ProductPlans plans = plan_bands(tiles);
  return {plans.front().end_tile, {plans.front().split, plans.back().split}};
}

int32_t product_columns(const ProductPlan& plan, int32_t num_rows) {
  int64_t piece = ceil_divide(num_rows, plan.most_pieces);
  int64_t wanted = plan.form == UnitForm::broad ? ceil_divide(piece, 2) : piece;
  for (int32_t columns : kColumnChoices) {
    if (columns >= wanted) return columns;
  }
  return kMaxTokens;
}

ProductLayout product_layout(const ProductPlan& plan, int32_t columns,
                             int32_t num_rounds) {
  StagePlan stages = plan_stages(plan, columns, num_rounds);
  int64_t bytes = stages.num_stages * stage_bytes(plan, columns);
  int64_t exchange = exchange_bytes(plan, columns, num_rounds);
  ProductLayout layout = {};
  ProductShape& shape = layout.shape;
  shape.split = plan.split;
  shape.split_reciprocal =
      static_cast<int32_t>(ceil_divide(1 << kReciprocalBits, plan.split));
  shape.first_unit = plan.first_unit;
  shape.end_unit = plan.first_unit + plan.num_units;
  shape.part_tiles = plan.num_column_tiles / plan.split;
  shape.num_longer_parts = plan.num_column_tiles % plan.split;
  shape.num_stages = static_cast<int32_t>(stages.num_stages);
  shape.num_in_flight = static_cast<int32_t>(std::clamp(
      kBytesInFlight / unit_bytes(plan), int64_t{1}, stages.num_stages));
  shape.keeps_own = keeps_own(plan, columns, num_rounds);
  shape.reuses_stages = stages.reuses_stages;
  shape.exchange_offset =
      stages.reuses_stages ? 0 : static_cast<int32_t>(bytes);
  layout.bytes = std::max(bytes, shape.exchange_offset + exchange);
  return layout;
}

}
