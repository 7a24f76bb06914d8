#pragma once

#include <cuda_runtime.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <mutex>
#include <string>
#include <vector>

#include "native/collectives/peer/exchange.hpp"
#include "native/collectives/peer/region.hpp"
#include "native/collectives/peer/stop.hpp"
#include "native/collectives/threads/rank_group.hpp"

namespace glm::collectives {

struct SharedMemory {
  char* data = nullptr;
  int64_t bytes = 0;
  int64_t region_offset = 0;
  RegionShape region;
};

class PeerGroup {
 public:
  explicit PeerGroup(std::vector<int32_t> ordinals);
  ~PeerGroup();
  PeerGroup(const PeerGroup&) = delete;
  PeerGroup& operator=(const PeerGroup&) = delete;

  int32_t world_size() const { return threads_.world_size(); }
  int32_t ordinal(int32_t rank) const {
    return ordinals_[static_cast<size_t>(rank)];
  }
  bool shares_gpu() const;
  cudaStream_t common_stream();
  void enable_access(int32_t rank) const;
  std::vector<SharedMemory> gather(int32_t rank, const SharedMemory& mine);
  Stop stop_of(int32_t rank, uint32_t* has_stopped) const;
  void wait_for_slower_ranks(int32_t rank);
  void meet(const char* where, int32_t rank);
  void abort();
  bool is_running() const;
  void expect_running(const char* where) const;

 private:
  void stop_late(int32_t rank, int32_t peer);

  const std::vector<int32_t> ordinals_;
  RankGroup threads_;
  std::array<std::atomic<int64_t>, kMaxRanks> num_launched_ = {};
  std::array<std::atomic<int64_t>, kMaxRanks> num_meetings_ = {};
  std::once_flag has_stream_;
  cudaStream_t common_stream_ = nullptr;
  uint32_t* record_ = nullptr;
};

}
