#pragma once

#include <cstdint>

#include "native/kernels/experts/parameters.hpp"
#include "native/kernels/products/ring_cursor.hpp"
#include "native/kernels/stream/product_args.hpp"
#include "native/ptx/mbarrier.hpp"
#include "native/ptx/warp_arrival.hpp"

namespace glm::kernels::mixture {

constexpr int32_t kProductWarps = 8;
constexpr int32_t kProductThreads = kProductWarps * kWarpThreads;
constexpr int32_t kTeams = 2;
constexpr int32_t kTeamWarps = kProductWarps / kTeams;
constexpr int32_t kTeamThreads = kTeamWarps * kWarpThreads;
constexpr int32_t kWeightWarp = kProductWarps;
constexpr int32_t kTokenWarp = kProductWarps + 1;
constexpr int32_t kFinishWarp = kProductWarps + 2;
constexpr int32_t kFinishWarps = 6;
constexpr int32_t kFinishThreads = kFinishWarps * kWarpThreads;
constexpr int32_t kNumWarps = kFinishWarp + kFinishWarps;
constexpr int32_t kNumThreads = kNumWarps * kWarpThreads;
constexpr int32_t kQueueUnits = 8;
constexpr uint32_t kWholeWarp = 0xFFFFFFFFu;

struct RingBarriers {
  uint64_t full[stream::kMaxStages];
  uint64_t empty[stream::kMaxStages];
};

struct TileRing {
  uint8_t* stages;
  RingBarriers* barriers;
  int32_t num_stages;
  int32_t stage_bytes;
};

struct ExpertList {
  uint16_t expert;
  uint16_t begin;
  uint16_t count;
  uint16_t unused;
};

enum class Phase : int32_t { gate_up, down, combine, shared_combine, end };

struct alignas(16) Unit {
  Phase phase;
  int32_t list;
  int32_t row_unit;
  int32_t group;

  __device__ bool is_combine() const {
    return phase == Phase::combine || phase == Phase::shared_combine;
  }
};

struct UnitQueue {
  Unit unit[kQueueUnits];
  uint64_t full[kQueueUnits];
  uint64_t empty[kQueueUnits];
  uint64_t stored[kQueueUnits];
  uint64_t scaled[kQueueUnits];
  float token_scale[kQueueUnits][kMaxListTokens];
};

struct SharedState {
  UnitQueue queue;
  RingBarriers ring;
  uint64_t turn[kTeams];
  ExpertMatrices matrices[2];
  ExpertList lists[kMaxLists];
  uint16_t list_begin[kMaxLocalExperts];
  int32_t num_lists;
  int32_t num_shared_lists;
  uint32_t epoch;
  int32_t is_last;
  uint32_t peaks[2][kFinishWarps];
  uint32_t warp_totals[kProductWarps];
};

template <int32_t rows, int32_t down_rows>
__device__ inline bool has_height(const Unit& unit) {
  return rows == down_rows ? !unit.is_combine() : unit.phase == Phase::gate_up;
}

__device__ inline int32_t own_team() { return threadIdx.x / kTeamThreads; }

__device__ inline int32_t team_thread() { return threadIdx.x % kTeamThreads; }

template <int32_t rows>
struct StageShape {
  static_assert(rows == kSmallGateUpRows || rows == kSmallDownRows ||
                rows == kTileRows);
  static constexpr int32_t kTiles = kTileRows / rows;
  static constexpr int32_t kTileBytesOfUnit = rows * kTileRowBytes;

  __host__ __device__ static constexpr int32_t bytes(int32_t max_columns) {
    return kTileBytes + kTiles * max_columns * kTileRowBytes;
  }
  __host__ __device__ static constexpr int32_t stages(int32_t num_tiles) {
    return (num_tiles + kTiles - 1) / kTiles;
  }
};

template <int32_t rows, int32_t max_columns>
struct TeamShape : StageShape<rows> {
  static constexpr bool kSharesUnits = max_columns > kFewColumns;
  static constexpr int32_t kTeamsOfUnit = kSharesUnits ? kTeams : 1;
  static constexpr int32_t kStoringWarps = kTeamsOfUnit * kTeamWarps;
  static constexpr int32_t kRows = rows;
  static constexpr int32_t kRowBlocks =
      rows < stream::kWarpgroupRows ? 1 : rows / stream::kWarpgroupRows;
  static constexpr int32_t kBlocks = kRowBlocks / kTeamsOfUnit;
  static constexpr int32_t kMaxColumns = max_columns;
  static constexpr int32_t kTokenBytes = max_columns * kTileRowBytes;
  static_assert(kBlocks > 0);

  __device__ static int32_t first_block() {
    return kSharesUnits ? own_team() * kBlocks : 0;
  }
};

struct Frame {
  const ExpertsParameters& p;
  SharedState& shared;
  uint16_t* order;
  TileRing ring;
  Counters* counters;
  int32_t list_tokens;

  __device__ const ExpertMatrices& matrices_of(const Unit& unit) const {
    return shared.matrices[unit.list < shared.num_shared_lists ? 1 : 0];
  }
  __device__ int32_t num_gate_up_units() const {
    return shared.num_shared_lists * p.shared.gate_up.num_row_units +
           (shared.num_lists - shared.num_shared_lists) *
               p.routed.gate_up.num_row_units;
  }
  __device__ int32_t num_product_units() const {
    return num_gate_up_units() + shared.num_lists * num_down_rows();
  }
  __device__ int32_t num_down_rows() const {
    return p.routed.down.num_row_units;
  }
  __device__ int32_t num_units() const {
    return num_product_units() + num_row_combines() * p.num_groups;
  }
  __device__ int32_t num_row_combines() const {
    return static_cast<int32_t>(
        ceil_divide(num_down_rows(), p.rows_per_combine));
  }
  __device__ bool is_shared_combine(int32_t index) const {
    int32_t bands = min(p.num_bands, 2);
    int32_t first = num_units() - bands * p.rows_per_band * p.num_groups;
    return p.shares_last_combine && index >= first;
  }
  __device__ Unit unit_at(int32_t index) const {
    if (index >= num_units()) return {Phase::end, 0, 0, 0};
    int32_t down = index - num_gate_up_units();
    if (down < 0) return gate_up_at(index);
    Unit unit = down_or_combine_at(down);
    if (unit.phase == Phase::combine && is_shared_combine(index))
      unit.phase = Phase::shared_combine;
    return unit;
  }
  __device__ Unit gate_up_at(int32_t index) const {
    int32_t tiles = p.routed.gate_up.num_row_units;
    int32_t shared_tiles = p.shared.gate_up.num_row_units;
    int32_t num_shared = shared.num_shared_lists;
    if (list_tokens > kFewColumns && num_shared > 1) {
      int32_t period = max(shared.num_lists / 2, num_shared);
      int32_t row = index / period;
      int32_t list = index % period;
      if (row < shared_tiles && list < num_shared)
        return {Phase::gate_up, list, row, 0};
      index -= num_shared * min(row + 1, shared_tiles);
    } else {
      if (index < num_shared * shared_tiles)
        return {Phase::gate_up, index / shared_tiles, index % shared_tiles, 0};
      index -= num_shared * shared_tiles;
    }
    return {Phase::gate_up, num_shared + index / tiles, index % tiles, 0};
  }
  __device__ Unit down_or_combine_at(int32_t index) const {
    int32_t num_down = shared.num_lists * p.rows_per_band;
    if (index < num_down) return down_at(0, index);
    int32_t step = num_down + p.rows_per_band * p.num_groups;
    int32_t band = (index - num_down) / step;
    int32_t within = (index - num_down) % step;
    if (band + 1 == p.num_bands) return combine_at(band, within);
    return within < num_down ? down_at(band + 1, within)
                             : combine_at(band, within - num_down);
  }
  __device__ Unit down_at(int32_t band, int32_t within) const {
    return {Phase::down, within / p.rows_per_band,
            band * p.rows_per_band + within % p.rows_per_band, 0};
  }
  __device__ Unit combine_at(int32_t band, int32_t within) const {
    int32_t row = within / p.num_groups * p.rows_per_combine;
    return {Phase::combine, 0, band * p.rows_per_band + row,
            within % p.num_groups};
  }
};

__device__ inline const StreamedMatrix& matrix_of(const Frame& frame,
                                                  const Unit& unit) {
  const ExpertMatrices& matrices = frame.matrices_of(unit);
  return unit.phase == Phase::down ? matrices.down : matrices.gate_up;
}

__device__ inline void meet_finish_warps() {
  asm volatile("bar.sync 3, %0;" ::"n"(kFinishThreads) : "memory");
}

class Turn {
 public:
  __device__ explicit Turn(SharedState& shared)
      : own_(&shared.turn[own_team()]),
        other_(&shared.turn[1 - own_team()]),
        parity_(own_team() == 0 ? 1 : 0) {}

  __device__ void await() {
    ptx::barrier_wait(own_, parity_);
    parity_ ^= 1;
  }
  __device__ void pass() const {
    if (threadIdx.x % kWarpThreads == 0) ptx::barrier_arrive(other_);
  }

 private:
  uint64_t* own_;
  uint64_t* other_;
  uint32_t parity_;
};

__device__ inline void init_slot(UnitQueue& queue, int32_t slot,
                                 int32_t num_storing_warps) {
  ptx::barrier_init(&queue.full[slot], 1);
  ptx::barrier_init(&queue.empty[slot], kProductWarps + 1 + kFinishWarps);
  ptx::barrier_init(&queue.stored[slot],
                    num_storing_warps * ptx::kWarpArrivals);
  ptx::barrier_init(&queue.scaled[slot], ptx::kWarpArrivals);
}

__device__ inline void push_unit(UnitQueue& queue, products::RingCursor& cursor,
                                 const Unit& unit) {
  ptx::barrier_wait(&queue.empty[cursor.stage], cursor.parity ^ 1);
  queue.unit[cursor.stage] = unit;
  ptx::barrier_arrive(&queue.full[cursor.stage]);
  cursor.advance(kQueueUnits);
}

__device__ inline Unit read_unit(UnitQueue& queue,
                                 const products::RingCursor& cursor) {
  ptx::barrier_wait(&queue.full[cursor.stage], cursor.parity);
  Unit unit = {};
  if (threadIdx.x % kWarpThreads == 0) unit = queue.unit[cursor.stage];
  return {static_cast<Phase>(
              __shfl_sync(kWholeWarp, static_cast<int32_t>(unit.phase), 0)),
          __shfl_sync(kWholeWarp, unit.list, 0),
          __shfl_sync(kWholeWarp, unit.row_unit, 0),
          __shfl_sync(kWholeWarp, unit.group, 0)};
}

__device__ inline void release_unit(UnitQueue& queue,
                                    products::RingCursor& cursor) {
  __syncwarp();
  if (threadIdx.x % kWarpThreads == 0)
    ptx::barrier_arrive(&queue.empty[cursor.stage]);
  cursor.advance(kQueueUnits);
}

__device__ inline Unit pop_unit(UnitQueue& queue,
                                products::RingCursor& cursor) {
  Unit unit = read_unit(queue, cursor);
  release_unit(queue, cursor);
  return unit;
}

}
