#pragma once

#include <cuda_runtime.h>

#include <cstdint>
#include <optional>
#include <vector>

#include "native/collectives/peer/exchange.hpp"
#include "native/collectives/peer/gather.hpp"
#include "native/collectives/peer/peer_group.hpp"
#include "native/collectives/peer/peer_rows.hpp"
#include "native/collectives/peer/turns.hpp"

namespace glm::collectives {

struct PartOfSum {
  const void* delta;
  int32_t num_rows;
  int32_t width;
  bool is_scattered = false;
};

class PeerRank {
 public:
  PeerRank(PeerGroup& group, int32_t rank);

  int32_t rank() const { return rank_; }
  int32_t world_size() const { return group_.world_size(); }
  PeerGroup& group() const { return group_; }
  bool shares_gpu() const { return group_.shares_gpu(); }
  bool leads() const { return !shares_gpu() || rank_ == 0; }
  void meet_on_gpu(const char* where);
  int32_t max_exchange_rows() const {
    return region_shape_.rows_of(turns_.upcoming());
  }
  void set_region(void* data, int64_t bytes, const RegionShape& shape);
  void bind(void* memory, int64_t bytes, cudaStream_t stream);
  PeerRows reserve_exchange(const char* where, const PartOfSum& part);
  Exchange exchange_of(const char* where, const PartOfSum& part);
  Exchange exchange_between_ranks(const char* where, bool is_scattered) const;
  void expect_none_reserved(const char* where) const;
  void expect_in_bound_memory(const char* where, const char* what,
                              const void* data, int64_t bytes) const;
  void begin_graph() { turns_.begin_graph(); }
  int32_t end_graph();
  void drop_graph();
  void replay_graph(int32_t last_turn) { turns_.replay(last_turn); }
  Gather gather_of(const char* where);

 private:
  struct Reserved {
    PartOfSum part;
    Exchange exchange;
  };

  bool can_send_ahead(const PartOfSum& part) const;
  Exchange next_exchange(const char* where, const PartOfSum& part);
  void expect_bound(const char* where) const;
  void expect_equal_regions(const char* where) const;
  Stop stop() const;
  int64_t distance_to(int32_t peer) const;
  template <typename Pointer>
  Pointer* at(int32_t peer, Pointer* own) const;

  PeerGroup& group_;
  const int32_t rank_;
  Turns turns_;
  std::optional<Reserved> reserved_;
  char* region_ = nullptr;
  int64_t region_bytes_ = 0;
  RegionShape region_shape_;
  std::vector<SharedMemory> memories_;
};

PeerRows reserve_exchange(PeerRank* rank, const char* where,
                          int32_t part_of_sum, PartOfSum part);

}
