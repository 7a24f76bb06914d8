#include <cstdint>

#include "native/base/cuda.hpp"
#include "native/kernels/experts/expert_lists.hpp"
#include "native/kernels/experts/finish_units.hpp"
#include "native/kernels/experts/loaders.hpp"
#include "native/kernels/experts/parameters.hpp"
#include "native/kernels/experts/products.hpp"
#include "native/kernels/experts/shared_state.hpp"
#include "native/ptx/dependent_launch.hpp"

namespace glm::kernels::mixture {
namespace {

constexpr int32_t kSharedLimit = 227 * 1024;
constexpr int32_t kMostStages = 12;
constexpr int32_t kInFlightBytes = 64 * 1024;
constexpr int32_t kInFlightBytesOfSmallUnits = 48 * 1024;
constexpr int32_t kFewestBandTilesEach = 22;
constexpr int32_t kFewestBandTokens = 33;
constexpr int32_t kFewUnitsEach = 4;
constexpr int32_t kNarrowTiles = 4;

__device__ void init_shared(const ExpertsParameters& p, SharedState& shared,
                            int32_t num_storing_warps) {
  if (threadIdx.x % kWarpThreads != 0) return;
  int32_t warp = threadIdx.x / kWarpThreads;
  for (int32_t stage = warp; stage < p.num_stages; stage += kNumWarps) {
    ptx::barrier_init(&shared.ring.full[stage], 1 + kWarpThreads);
    ptx::barrier_init(&shared.ring.empty[stage], kProductWarps);
  }
  for (int32_t slot = warp; slot < kQueueUnits; slot += kNumWarps)
    init_slot(shared.queue, slot, num_storing_warps);
  if (warp < kTeams) ptx::barrier_init(&shared.turn[warp], kTeamWarps);
  if (warp == kFinishWarp) shared.matrices[0] = p.routed;
  if (warp == kFinishWarp + 1) shared.matrices[1] = p.shared;
  ptx::barrier_init_fence();
}

__device__ void clear_counters(Counters& counters) {
  uint32_t* words = reinterpret_cast<uint32_t*>(&counters);
  constexpr int32_t kWords = sizeof(Counters) / sizeof(uint32_t);
  int32_t stride = static_cast<int32_t>(gridDim.x) * kFinishThreads;
  int32_t thread = threadIdx.x - kFinishWarp * kWarpThreads;
  for (int32_t i = blockIdx.x * kFinishThreads + thread; i < kWords;
       i += stride)
    words[i] = 0;
}

template <int32_t dtype, int32_t rows, int32_t down_rows, int32_t max_columns>
__global__ __launch_bounds__(kNumThreads, 1) void experts_kernel(
    const __grid_constant__ ExpertsParameters p) {
  extern __shared__ __align__(1024) uint8_t memory[];
  constexpr int32_t kStageBytes = StageShape<rows>::bytes(max_columns);
  uint8_t* after_ring = memory + p.num_stages * kStageBytes;
  SharedState& shared = *reinterpret_cast<SharedState*>(after_ring);
  uint16_t* order =
      reinterpret_cast<uint16_t*>(after_ring + sizeof(SharedState));
  Frame frame = {p,       shared,
                 order,   {memory, &shared.ring, p.num_stages, kStageBytes},
                 nullptr, max_columns};
  ptx::let_successor_start();
  init_shared(p, shared, TeamShape<rows, max_columns>::kStoringWarps);
  if constexpr (dtype == GLM_DTYPE_F8_E4M3)
    if (threadIdx.x == kWeightWarp * kWarpThreads) prefetch_shared_expert(p);
  begin_lists(frame);
  ptx::wait_for_predecessor();
  build_lists<max_columns>(frame);
  uint32_t epoch = shared.epoch;
  frame.counters = &p.control->counters[epoch & 1];
  int32_t warp = threadIdx.x / kWarpThreads;
  if (warp == kWeightWarp) {
    if (threadIdx.x % kWarpThreads == 0)
      stream_weights<rows, down_rows>(frame, epoch);
  } else if (warp == kTokenWarp) {
    load_tokens<rows, down_rows, max_columns>(frame);
  } else if (warp >= kFinishWarp) {
    clear_counters(p.control->counters[(epoch & 1) ^ 1]);
    finish_units<dtype, down_rows, max_columns>(frame);
  } else {
    run_units<dtype, rows, down_rows, max_columns>(frame);
  }
}

void set_groups(ExpertsParameters& p, int32_t rows,
                int32_t num_multiprocessors) {
  int64_t at_once = kFinishThreads * kLaneRows / rows;
  int64_t last_rows = min(p.routed.down.num_row_units, 2 * p.rows_per_band);
  int64_t wanted = max(int64_t{1}, num_multiprocessors / last_rows);
  p.tokens_per_group = static_cast<int32_t>(
      round_up(ceil_divide(p.num_tokens, wanted), at_once));
  p.num_groups =
      static_cast<int32_t>(ceil_divide(p.num_tokens, p.tokens_per_group));
  p.shares_last_combine = p.tokens_per_group > at_once;
  p.rows_per_combine = 1;
  while (2 * p.rows_per_combine * p.num_tokens <= at_once)
    p.rows_per_combine *= 2;
}

int32_t most_lists(const ExpertsParameters& p) {
  return min(p.num_experts, p.num_assignments());
}

void set_bands(ExpertsParameters& p, int32_t num_multiprocessors) {
  int32_t rows = p.routed.down.num_row_units;
  int64_t tiles = int64_t{most_lists(p)} * p.routed.down.num_column_tiles;
  int64_t fewest = int64_t{kFewestBandTilesEach} * num_multiprocessors;
  int32_t band = 1;
  while (band * tiles < fewest && rows % (2 * band) == 0) band *= 2;
  bool is_whole = p.num_tokens < kFewestBandTokens || band * tiles < fewest;
  p.rows_per_band = is_whole ? rows : band;
  p.num_bands = rows / p.rows_per_band;
}

void set_units(ExpertsParameters& p, int32_t rows, int32_t down_rows,
               int32_t num_multiprocessors) {
  for (ExpertMatrices* each : {&p.routed, &p.shared}) {
    each->gate_up.set_row_units(rows);
    each->down.set_row_units(down_rows);
  }
  set_bands(p, num_multiprocessors);
  set_groups(p, down_rows, num_multiprocessors);
}

template <int32_t dtype, int32_t rows, int32_t down_rows, int32_t max_columns>
void launch_shape(cudaStream_t stream, int32_t num_multiprocessors,
                  ExpertsParameters p) {
  static_assert(down_rows >= kSmallDownRows,
                "too few counters for the down projection");
  expect_range("experts", "choices per launch", 0, kMostChoices<max_columns>,
               p.num_assignments());
  constexpr int32_t kStageBytes = StageShape<rows>::bytes(max_columns);
  int32_t state_bytes =
      static_cast<int32_t>(sizeof(SharedState)) + p.num_assignments() * 2;
  set_units(p, rows, down_rows, num_multiprocessors);
  p.num_stages = min(kMostStages, (kSharedLimit - state_bytes) / kStageBytes);
  expect_range("experts", "ring buffer bytes",
               MemberBits::bytes(p.num_assignments(), p.num_experts), INT64_MAX,
               int64_t{p.num_stages} * kStageBytes);
  constexpr int32_t kInFlight =
      rows == kSmallGateUpRows ? kInFlightBytesOfSmallUnits : kInFlightBytes;
  p.num_in_flight = min(p.num_stages, kInFlight / kTileBytes);
  LaunchShape shape;
  shape.grid = dim3(static_cast<uint32_t>(num_multiprocessors));
  shape.block = dim3(kNumThreads);
  shape.shared_bytes = p.num_stages * kStageBytes + state_bytes;
  launch("experts", stream, shape,
         experts_kernel<dtype, rows, down_rows, max_columns>, p);
}

bool has_few_units(const ExpertsParameters& p, const StreamedMatrix& matrix,
                   int32_t num_multiprocessors) {
  int64_t units =
      int64_t{most_lists(p)} * ceil_divide(matrix.num_packed_rows, kTileRows);
  return units < int64_t{kFewUnitsEach} * num_multiprocessors;
}

bool has_small_units(const ExpertsParameters& p, int32_t num_multiprocessors) {
  const StreamedMatrix& down = p.routed.down;
  return down.num_column_tiles > kNarrowTiles &&
         has_few_units(p, down, num_multiprocessors);
}

template <int32_t dtype>
void launch_dtype(cudaStream_t stream, int32_t num_multiprocessors,
                  const ExpertsParameters& p) {
  auto with = [&](auto kernel) { kernel(stream, num_multiprocessors, p); };
  bool is_few = p.num_tokens <= kFewColumns;
  if (is_few && has_few_units(p, p.routed.gate_up, num_multiprocessors)) {
    if (has_small_units(p, num_multiprocessors))
      return with(
          launch_shape<dtype, kSmallGateUpRows, kSmallDownRows, kFewColumns>);
    return with(launch_shape<dtype, kSmallGateUpRows, kTileRows, kFewColumns>);
  }
  if (is_few)
    return with(launch_shape<dtype, kTileRows, kTileRows, kFewColumns>);
  if (p.num_tokens <= 16)
    return with(launch_shape<dtype, kTileRows, kTileRows, 16>);
  with(launch_shape<dtype, kTileRows, kTileRows, kMaxListTokens>);
}

}

void launch_experts(cudaStream_t stream, int32_t num_multiprocessors,
                    int32_t dtype, const ExpertsParameters& parameters) {
  if (dtype == GLM_DTYPE_BF16)
    return launch_dtype<GLM_DTYPE_BF16>(stream, num_multiprocessors,
                                        parameters);
  launch_dtype<GLM_DTYPE_F8_E4M3>(stream, num_multiprocessors, parameters);
}

}
