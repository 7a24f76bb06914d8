#ifndef GLM_KERNELS_STREAM_PRODUCT_STAGE_HPP
#define GLM_KERNELS_STREAM_PRODUCT_STAGE_HPP

#include <cstdint>

#include "native/kernels/stream/part_exchange.hpp"
#include "native/kernels/stream/product_args.hpp"
#include "native/kernels/stream/product_plan.hpp"
#include "native/kernels/stream/tile_ring.hpp"
#include "native/ptx/cluster.hpp"

namespace glm::kernels::stream {

constexpr uint32_t kBarrierBytes = sizeof(uint64_t);
constexpr int32_t kMostSharedRegisterColumns = 64;
constexpr int32_t kMaxBlockColumns = 128;
constexpr int32_t kMaxAccumulators = 192;

struct ProductBarriers {
  RingBarriers ring;
  PartBarriers parts;
};

struct ProductShared {
  uint8_t* data;
  uint8_t* tokens;
  ProductBarriers* barriers;
  float* token_scales;
};

template <int32_t num_columns, bool is_broad>
struct StageLayout {
  static constexpr int32_t kColumns = num_columns;
  static constexpr bool kIsBroad = is_broad;
  static constexpr int32_t kUnitGroups = is_broad ? 1 : 2;
  static constexpr int32_t kUnitRows = kUnitGroups * kWarpgroupRows;
  static constexpr int32_t kTokens = is_broad ? 2 * num_columns : num_columns;
  static constexpr int32_t kWeightBytes = kUnitRows * kTileRowBytes;
  static constexpr int32_t kTokenBytes = kTokens * kTileRowBytes;
  static constexpr int32_t kBlock =
      num_columns <= kMaxBlockColumns ? num_columns : num_columns / 2;
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

  __device__ explicit ProductPosition(const ProductShape& shape)
      : part(static_cast<int32_t>(ptx::cluster_rank())),
        first_unit(shape.first_unit +
                   static_cast<int32_t>(ptx::cluster_index())),
        unit_step(static_cast<int32_t>(ptx::num_clusters())),
        num_tiles(shape.part_tiles + (part < shape.num_longer_parts)),
        first_tile(part * shape.part_tiles +
                   min(part, shape.num_longer_parts)) {}
};

}

#endif
