#ifndef GLM_TESTS_EXCHANGE_RANKS_HPP
#define GLM_TESTS_EXCHANGE_RANKS_HPP

#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "native/collectives/peer/region.hpp"

namespace exchange {

using glm::collectives::RegionShape;

constexpr int32_t kMostRows = 3;
constexpr int32_t kAbsent = -1;

struct Call {
  int32_t num_rows;
  int32_t turn;
  bool is_sent_ahead;
};

enum class Producers { wait, do_not_wait };

struct Store {
  int32_t target;
  int64_t place;
  int32_t value;
};

struct Rank {
  std::vector<int32_t> memory;
  size_t call = 0;
  std::vector<Store> unsent;
  std::vector<int32_t> unread;
  std::vector<int64_t> uncleared;
};

class Ranks {
 public:
  Ranks(const RegionShape& region, std::vector<Call> calls, Producers producers,
        uint64_t seed);
  std::string run();

 private:
  int32_t value(size_t call, int32_t sender, int32_t row) const;
  void begin(int32_t rank);
  bool begins_early(size_t call) const;
  void add_sends(int32_t rank, size_t call);
  void add_reads(int32_t rank);
  bool is_producing(const Rank& rank) const;
  bool has_ended(int32_t rank) const;
  void step();
  void send(Rank& rank);
  void deliver();
  void read(int32_t rank);
  void clear(Rank& rank);
  size_t any(size_t count);
  template <typename Item>
  Item take_any(std::vector<Item>& items);

  const RegionShape region_;
  const int32_t world_size_;
  const std::vector<Call> calls_;
  const Producers producers_;
  std::mt19937_64 random_;
  std::vector<Rank> ranks_;
  std::vector<Store> under_way_;
  std::string fault_;
};

}

#endif
