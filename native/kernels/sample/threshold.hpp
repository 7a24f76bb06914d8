#pragma once

#include <cstdint>

#include "native/kernels/sample/slice.hpp"

namespace glm::kernels::sampling {

constexpr int32_t kMaxKeyBits = 9;
constexpr float kBinsPerUnit = 32.0f;
constexpr float kAboveLogOfTwo = 0.6932f;
static_assert(1 << kMaxKeyBits <= kNumBins);

struct CountWeight {
  uint64_t wanted;

  __device__ void add(Bins& bins, int32_t bin, float) const {
    atomicAdd(&bins.words[0][bin], 1u);
  }
  __device__ uint64_t joined(uint64_t low, uint64_t) const { return low; }
  __device__ uint64_t target(uint64_t) const { return wanted; }
  __device__ uint64_t greatest() const { return 1; }
  __device__ float least_scaled() const { return unordered(kLowestKey); }
};

struct MassWeight {
  int32_t word_bits;
  float unit;
  float share;

  __device__ void add(Bins& bins, int32_t bin, float scaled) const {
    uint64_t mass = __float2ull_rn(expf(scaled) * unit);
    uint32_t low = static_cast<uint32_t>(mass) & ((1u << word_bits) - 1);
    uint32_t high = static_cast<uint32_t>(mass >> word_bits);
    if (low != 0) atomicAdd(&bins.words[0][bin], low);
    if (high != 0) atomicAdd(&bins.words[1][bin], high);
  }
  __device__ uint64_t joined(uint64_t low, uint64_t high) const {
    return low + (high << word_bits);
  }
  __device__ uint64_t target(uint64_t total) const {
    double wanted = static_cast<double>(share) * static_cast<double>(total);
    return wanted < 1.0 ? 1 : __double2ull_ru(wanted);
  }
  __device__ uint64_t greatest() const { return static_cast<uint64_t>(unit); }
  __device__ float least_scaled() const {
    return -kAboveLogOfTwo * static_cast<float>(kMassWords * word_bits);
  }
};

__device__ inline MassWeight mass_weight(int32_t vocab_size, float share) {
  int32_t size = static_cast<int32_t>(part_tokens(vocab_size, kRowBlocks));
  int32_t word_bits = __clz(size);
  uint64_t unit = uint64_t{1} << (kMassWords * word_bits - 1);
  return {word_bits, static_cast<float>(unit), share};
}

struct KeyRange {
  uint32_t low;
  uint32_t high;
  uint64_t before;
  uint64_t target;
  bool is_found;
};

struct LinearBinning {
  int32_t num_bins = kNumBins;

  __device__ int32_t bin_of(float scaled) const {
    int32_t distance = static_cast<int32_t>(scaled * -kBinsPerUnit);
    return kNumBins - 1 - min(distance, kNumBins - 1);
  }
  __device__ void narrow(KeyRange& range, uint32_t bin) const {
    int32_t distance = kNumBins - 1 - static_cast<int32_t>(bin);
    float end = static_cast<float>(distance + 1) / -kBinsPerUnit;
    range.high = ordered(static_cast<float>(distance) / -kBinsPerUnit);
    if (bin != 0) range.low = max(range.low, ordered(end) + 1);
  }
};

struct KeyBinning {
  uint32_t low;
  int32_t shift;
  int32_t num_bins;

  __device__ explicit KeyBinning(const KeyRange& range) : low(range.low) {
    int32_t bits = kWarpThreads - __clz(range.high - range.low);
    int32_t rounds = (bits + kMaxKeyBits - 1) / kMaxKeyBits;
    int32_t own_bits = (bits + rounds - 1) / rounds;
    shift = bits - own_bits;
    num_bins = 1 << own_bits;
  }
  __device__ int32_t bin_of(float scaled) const {
    return static_cast<int32_t>((ordered(scaled) - low) >> shift);
  }
  __device__ void narrow(KeyRange& range, uint32_t bin) const {
    range.low += bin << shift;
    range.high = min(range.high, range.low + (1u << shift) - 1);
  }
};

template <typename Weight, typename Binning>
__device__ void fill_bins(const Row& row, const Weight& weight,
                          const KeyRange& range, const Binning& binning,
                          Bins& bins) {
  for (int32_t bin = threadIdx.x; bin < binning.num_bins; bin += kThreads)
    bins.words[0][bin] = bins.words[1][bin] = 0;
  __syncthreads();
  float low = fmaxf(unordered(range.low), weight.least_scaled());
  float high = unordered(range.high);
  row.for_each_token([&](int32_t, float scaled) {
    if (scaled >= low && scaled <= high)
      weight.add(bins, binning.bin_of(scaled), scaled);
  });
  cluster_barrier();
}

template <typename Weight>
__device__ ulonglong2 total_of_pair(Bins& bins, const Weight& weight,
                                    int32_t pair) {
  ulonglong2 total = {0, 0};
  if (pair < 0) return total;
#pragma unroll
  for (int32_t rank = 0; rank < kRowBlocks; ++rank) {
    Bins* peer = at_peer(&bins, rank);
    uint2 low = reinterpret_cast<uint2*>(peer->words[0])[pair];
    uint2 high = reinterpret_cast<uint2*>(peer->words[1])[pair];
    total.x += weight.joined(low.x, high.x);
    total.y += weight.joined(low.y, high.y);
  }
  return total;
}

__device__ inline uint64_t sum_before(Row& row, uint64_t own, uint64_t& total) {
  uint64_t until = own;
#pragma unroll
  for (int32_t distance = 1; distance < kWarpThreads; distance *= 2) {
    uint64_t other = __shfl_up_sync(kAllLanes, until, distance);
    if (lane() >= distance) until += other;
  }
  uint64_t* sums = row.shared.warp_sums;
  if (lane() == kWarpThreads - 1) sums[warp()] = until;
  __syncthreads();
  uint64_t before = until - own;
  total = 0;
#pragma unroll
  for (int32_t i = 0; i < kWarps; ++i) {
    if (i < warp()) before += sums[i];
    total += sums[i];
  }
  return before;
}

template <typename Weight>
__device__ bool select_bin(Row& row, const Weight& weight, KeyRange& range,
                           int32_t num_bins, Bins& bins) {
  int32_t pair = num_bins / 2 - 1 - static_cast<int32_t>(threadIdx.x);
  ulonglong2 own = total_of_pair(bins, weight, pair);
  uint64_t total = 0;
  uint64_t before = range.before + sum_before(row, own.x + own.y, total);
  if (range.target == 0) range.target = weight.target(total);
  uint64_t middle = before + own.y;
  uint64_t end = middle + own.x;
  SelectedBin& selected = row.shared.selected;
  if (before < range.target && range.target <= middle)
    selected = {2u * pair + 1, before, own.y};
  else if (middle < range.target && range.target <= end)
    selected = {2u * pair, middle, own.x};
  __syncthreads();
  return range.before + total >= range.target;
}

template <typename Weight, typename Binning>
__device__ bool narrow_range(Row& row, const Weight& weight, KeyRange& range,
                             const Binning& binning) {
  Bins& bins = row.next_bins();
  fill_bins(row, weight, range, binning, bins);
  if (!select_bin(row, weight, range, binning.num_bins, bins)) return false;
  const SelectedBin& selected = row.shared.selected;
  binning.narrow(range, selected.bin);
  range.before = selected.before;
  range.is_found = selected.before + selected.weight == range.target ||
                   range.low == range.high;
  return true;
}

template <typename Weight>
__device__ uint32_t select_threshold(Row& row, const Weight& weight,
                                     uint32_t floor) {
  KeyRange range = {floor, kZeroKey, 0, 0, false};
  if (!narrow_range(row, weight, range, LinearBinning())) return floor;
  if (range.target <= weight.greatest()) return kZeroKey;
  while (!range.is_found) narrow_range(row, weight, range, KeyBinning(range));
  return range.low;
}

__device__ inline uint32_t survivors_floor(Row& row,
                                           const RowControls& controls) {
  uint32_t floor = kLowestKey;
  if (controls.min_p > 0)
    floor = max(
        floor,
        ordered(static_cast<float>(log(static_cast<double>(controls.min_p)))));
  if (floor > kZeroKey) return floor;
  if (controls.top_k > 0 && controls.top_k < row.vocab_size)
    floor = select_threshold(
        row, CountWeight{static_cast<uint64_t>(controls.top_k)}, floor);
  if (controls.top_p < 1.0f)
    floor = select_threshold(row, mass_weight(row.vocab_size, controls.top_p),
                             floor);
  return floor;
}

}
