#ifndef GLM_KERNELS_SAMPLE_THRESHOLD_HPP
#define GLM_KERNELS_SAMPLE_THRESHOLD_HPP

#include <cstdint>

#include "native/kernels/sample/cluster_row.hpp"

namespace glm::kernels::sampling {

constexpr int32_t kMassBits = 62;

struct Scaling {
  float largest;
  float temperature;

  __device__ float operator()(float logit) const {
    return __fdiv_rn(logit - largest, temperature);
  }
};

struct CountWeight {
  int32_t wanted;

  __device__ uint64_t operator()(float) const { return 1; }
  __device__ uint64_t target(uint64_t) const { return wanted; }
};

__device__ inline float mass_unit(int32_t vocab_size) {
  int32_t bits = kMassBits - (kWarpThreads - __clz(vocab_size));
  return static_cast<float>(uint64_t{1} << bits);
}

struct MassWeight {
  float unit;
  float share;

  __device__ uint64_t operator()(float scaled) const {
    return __float2ull_rn(expf(scaled) * unit);
  }
  __device__ uint64_t target(uint64_t total) const {
    double wanted = static_cast<double>(share) * static_cast<double>(total);
    return wanted < 1.0 ? 1 : __double2ull_ru(wanted);
  }
};

struct KeyRange {
  uint32_t low;
  uint32_t high;
  uint64_t before;

  __device__ int32_t shift() const {
    int32_t bits = kWarpThreads - __clz(high - low);
    return max(bits - kBinBits, 0);
  }
  static constexpr int32_t kBinBits = 10;
  static_assert(1 << kBinBits == kNumBins);
};

template <typename Weight>
__device__ void fill_bins(const Slice& slice, const Scaling& scaling,
                          const Weight& weight, const KeyRange& range,
                          uint64_t* bins) {
  auto* counters = reinterpret_cast<unsigned long long*>(bins);
  int32_t shift = range.shift();
  bins[threadIdx.x] = 0;
  bins[threadIdx.x + kThreads] = 0;
  __syncthreads();
  for_each_token(slice, [&](int32_t, float logit) {
    float scaled = scaling(logit);
    uint32_t key = ordered(scaled);
    if (key < range.low || key > range.high) return;
    atomicAdd(counters + ((key - range.low) >> shift), weight(scaled));
  });
}

__device__ inline ulonglong2 total_of_pair(uint64_t* bins, int32_t pair) {
  ulonglong2 total = {0, 0};
#pragma unroll
  for (int32_t rank = 0; rank < kRowBlocks; ++rank) {
    ulonglong2 part = reinterpret_cast<ulonglong2*>(at_peer(bins, rank))[pair];
    total.x += part.x;
    total.y += part.y;
  }
  return total;
}

__device__ inline uint64_t sum_before(ClusterRow& row, uint64_t own,
                                      uint64_t& total) {
  uint64_t until = own;
#pragma unroll
  for (int32_t distance = 1; distance < kWarpThreads; distance *= 2) {
    uint64_t other = __shfl_up_sync(kAllLanes, until, distance);
    if (row.lane() >= distance) until += other;
  }
  uint64_t* sums = row.shared().sums;
  if (row.lane() == kWarpThreads - 1) sums[row.warp()] = until;
  __syncthreads();
  uint64_t before = until - own;
  total = 0;
#pragma unroll
  for (int32_t i = 0; i < kWarps; ++i) {
    if (i < row.warp()) before += sums[i];
    total += sums[i];
  }
  return before;
}

template <typename Weight>
__device__ bool select_bin(ClusterRow& row, uint64_t* bins,
                           const Weight& weight, KeyRange& range,
                           uint64_t& target) {
  int32_t pair = kThreads - 1 - static_cast<int32_t>(threadIdx.x);
  ulonglong2 own = total_of_pair(bins, pair);
  uint64_t total = 0;
  uint64_t before = range.before + sum_before(row, own.x + own.y, total);
  if (target == 0) target = weight.target(total);
  uint64_t middle = before + own.y;
  uint64_t end = middle + own.x;
  SelectedBin& selected = row.shared().selected;
  if (before < target && target <= middle)
    selected = {2u * pair + 1, before, own.y};
  else if (middle < target && target <= end)
    selected = {2u * pair, middle, own.x};
  __syncthreads();
  return range.before + total >= target;
}

template <typename Weight>
__device__ uint32_t select_threshold(ClusterRow& row, const Scaling& scaling,
                                     const Weight& weight, uint32_t floor) {
  KeyRange range = {floor, kZeroKey, 0};
  uint64_t target = 0;
  for (;;) {
    uint64_t* bins = row.next_bins();
    int32_t shift = range.shift();
    fill_bins(row.slice(), scaling, weight, range, bins);
    cluster_barrier();
    if (!select_bin(row, bins, weight, range, target)) return floor;
    SelectedBin selected = row.shared().selected;
    range.low += selected.bin << shift;
    bool is_whole = selected.before + selected.weight == target;
    if (shift == 0 || is_whole) return range.low;
    range.high = min(range.high, range.low + (1u << shift) - 1);
    range.before = selected.before;
  }
}

__device__ inline uint32_t survivors_floor(ClusterRow& row,
                                           const RowControls& controls,
                                           const Scaling& scaling,
                                           int32_t vocab_size) {
  uint32_t floor = kLowestKey;
  if (controls.min_p > 0)
    floor = max(
        floor,
        ordered(static_cast<float>(log(static_cast<double>(controls.min_p)))));
  if (floor > kZeroKey) return floor;
  if (controls.top_k > 0 && controls.top_k < vocab_size)
    floor = select_threshold(row, scaling, CountWeight{controls.top_k}, floor);
  if (controls.top_p < 1.0f)
    floor = select_threshold(
        row, scaling, MassWeight{mass_unit(vocab_size), controls.top_p}, floor);
  return floor;
}

}

#endif
