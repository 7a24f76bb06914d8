#ifndef GLM_KERNELS_STREAM_PRODUCT_STAGE_HPP
#define GLM_KERNELS_STREAM_PRODUCT_STAGE_HPP

#include <cstdint>

#include "native/kernels/stream/part_exchange.hpp"
#include "native/kernels/stream/product_args.hpp"
#include "native/kernels/stream/product_plan.hpp"
#include "native/ptx/cluster.hpp"

namespace glm::kernels::stream {

constexpr uint32_t kBarrierBytes = sizeof(uint64_t);
constexpr int32_t kMostSharedRegisterColumns = 64;
constexpr int32_t kMaxBlockColumns = 128;
constexpr int32_t kMostHighBlockColumns = 64;
constexpr int32_t kMaxAccumulators = 192;

struct ProductBarriers {
  uint64_t weights[kMaxStages];
  uint64_t tokens[kMaxStages];
  uint64_t empty[kMaxStages];
  uint64_t predecessor_ended;
  PartBarriers parts;
};

struct ProductShared {
  uint8_t* data;
  uint8_t* tokens;
  ProductBarriers* barriers;
  float* token_scales;
};

template <int32_t num_columns, UnitForm form>
struct StageLayout {
  static constexpr int32_t kColumns = num_columns;
  static constexpr bool kIsBroad = form == UnitForm::broad;
  static constexpr bool kIsHigh = form == UnitForm::high;
  static constexpr bool kIsCrossed = form == UnitForm::crossed;
  static constexpr bool kIsFlanked = form == UnitForm::flanked;
  static constexpr bool kCutsTiles = kIsHigh || kIsCrossed;
  static constexpr int32_t kGroups = kIsHigh ? 3 : 2;
  static constexpr int32_t kUnitGroups = kIsBroad ? 1 : kGroups;
  static constexpr int32_t kUnitRows = kUnitGroups * kWarpgroupRows;
  static constexpr int32_t kTokens = kIsBroad ? 2 * num_columns : num_columns;
  static constexpr int32_t kSideRows = kIsCrossed   ? kCrossedRows
                                       : kIsFlanked ? kWarpgroupRows
                                                    : 0;
  static constexpr int32_t kStageRows = kUnitRows + kSideRows;
  static constexpr int32_t kUnitBytes = kUnitRows * kTileRowBytes;
  static constexpr int32_t kFlanks = num_columns / kFlankTokens;
  static constexpr int32_t kWeightBytes = kStageRows * kTileRowBytes;
  static constexpr int32_t kTokenBytes = kTokens * kTileRowBytes;
  static constexpr int32_t kMostBlockColumns =
      kCutsTiles ? kMostHighBlockColumns : kMaxBlockColumns;
  static constexpr int32_t kBlock =
      num_columns /
      static_cast<int32_t>(ceil_divide(num_columns, kMostBlockColumns));
  static constexpr int32_t kBlocks = num_columns / kBlock;
  static constexpr bool kPairsBlocks =
      num_columns / 2 + kBlock <= kMaxAccumulators;
  static constexpr bool kMovesRegisters =
      num_columns > kMostSharedRegisterColumns;
  static constexpr int32_t kProducerThreads =
      kMovesRegisters ? kWarpgroupThreads : kWarpThreads;
  static constexpr int32_t kMultiplierThreads = kGroups * kWarpgroupThreads;
  static constexpr int32_t kMultiplierWarps = kGroups * kWarpgroupWarps;
  static constexpr int32_t kThreads = kMultiplierThreads + kProducerThreads;
  static constexpr int32_t kResidents =
      !kIsHigh && num_columns <= kMostPairedColumns ? 2 : 1;
  static constexpr int32_t kMultiplierRegisters = kIsHigh ? 160 : 232;
  static constexpr int32_t kProducerRegisters = kIsHigh ? 32 : 40;
};

template <typename Layout>
struct FlankPlace {
  int32_t row;
  int32_t first_token;
  bool is_present;

  __device__ FlankPlace(const ProductShape& shape, int32_t unit)
      : row(shape.flank_row + unit / Layout::kFlanks * kWarpgroupRows),
        first_token(unit % Layout::kFlanks * kFlankTokens),
        is_present(row < shape.end_row) {}
};

struct ProductPosition {
  int32_t part;
  int32_t first_unit;
  int32_t unit_step;
  int32_t num_tiles;
  int32_t first_tile;
  int32_t first_token;

  __device__ ProductPosition(const ProductShape& shape, int32_t num_tokens)
      : part(static_cast<int32_t>(ptx::cluster_rank())),
        first_unit(shape.first_unit +
                   static_cast<int32_t>(ptx::cluster_index())),
        unit_step(static_cast<int32_t>(ptx::num_clusters())),
        num_tiles(shape.part_tiles + (part < shape.num_longer_parts)),
        first_tile(part * shape.part_tiles + min(part, shape.num_longer_parts)),
        first_token(static_cast<int32_t>(blockIdx.y) * num_tokens) {}
};

}

#endif
