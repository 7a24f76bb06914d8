#pragma once

#include <cstdint>

#include "native/kernels/stream/part_exchange.hpp"
#include "native/kernels/stream/product_args.hpp"
#include "native/kernels/stream/product_plan.hpp"
#include "native/ptx/cluster.hpp"

namespace glm::kernels::stream {

constexpr uint32_t kBarrierBytes = sizeof(uint64_t);
constexpr int32_t kMostSharedRegisterColumns = 64;
constexpr int32_t kMaxBlockColumns = 128;
constexpr int32_t kMaxAccumulators = 192;
constexpr int32_t kMultiplierRegisters = 232;
constexpr int32_t kProducerRegisters = 40;

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
  static constexpr int32_t kUnitGroups = kIsBroad ? 1 : kPartGroups;
  static constexpr int32_t kUnitRows = kUnitGroups * kWarpgroupRows;
  static constexpr int32_t kTokens = kIsBroad ? 2 * num_columns : num_columns;
  static constexpr int32_t kUnitBytes = kUnitRows * kTileRowBytes;
  static constexpr int32_t kTokenBytes = kTokens * kTileRowBytes;
  static constexpr int32_t kBlock =
      num_columns /
      static_cast<int32_t>(ceil_divide(num_columns, kMaxBlockColumns));
  static constexpr int32_t kBlocks = num_columns / kBlock;
  static constexpr bool kPairsBlocks =
      num_columns / 2 + kBlock <= kMaxAccumulators;
  static constexpr bool kMovesRegisters =
      num_columns > kMostSharedRegisterColumns;
  static constexpr int32_t kProducerThreads =
      kMovesRegisters ? kWarpgroupThreads : kWarpThreads;
  static constexpr int32_t kThreads = kMultiplierThreads + kProducerThreads;
  static constexpr int32_t kResidents =
      num_columns <= kMostPairedColumns ? 2 : 1;
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
