#ifndef GLM_COLLECTIVES_PEER_PEER_RANK_HPP
#define GLM_COLLECTIVES_PEER_PEER_RANK_HPP

#include <cuda_runtime.h>

#include <cstdint>
#include <vector>

#include "native/collectives/peer/exchange.hpp"
#include "native/collectives/peer/gather.hpp"
#include "native/collectives/peer/peer_group.hpp"
#include "native/collectives/peer/turns.hpp"

namespace glm::collectives {

class PeerRank {
 public:
  PeerRank(PeerGroup& group, int32_t rank);

  int32_t rank() const { return rank_; }
  int32_t world_size() const { return group_.world_size(); }
  PeerGroup& group() const { return group_; }
  Turns& turns() { return turns_; }
  bool shares_gpu() const { return group_.shares_gpu(); }
  bool leads() const { return !shares_gpu() || rank_ == 0; }
  void meet_on_gpu(const char* where);
  void set_region(void* data, int64_t bytes);
  void bind(void* memory, int64_t bytes, cudaStream_t stream);
  Exchange next_exchange(const char* where, int64_t width);
  Gather gather_of(const char* where, void* output);

 private:
  void expect_bound(const char* where) const;
  Stop stop() const;
  template <typename Pointer>
  Pointer* at(int32_t peer, Pointer* own) const;

  PeerGroup& group_;
  const int32_t rank_;
  Turns turns_;
  char* region_ = nullptr;
  int64_t region_bytes_ = 0;
  std::vector<SharedMemory> memories_;
};

Exchange without_sending(const Exchange& exchange);

int64_t region_bytes(int32_t world_size, int64_t hidden_size);

}

#endif
