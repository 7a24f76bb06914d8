#pragma once

#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "native/collectives/peer/region.hpp"

namespace exchange {

using glm::collectives::RegionShape;

constexpr int32_t kMostRows = 9;
constexpr int32_t kMostBlocks = 3;
constexpr int32_t kRowsUnderWay = 2;
constexpr int32_t kAbsent = -1;

struct Call {
  int32_t num_rows;
  int32_t turn;
  bool is_sent_ahead;
  bool has_owners;
  bool is_scattered;
  bool has_codes;
};

struct Rules {
  bool uses_turns = true;
  bool producers_wait = true;
  bool owners_wait = true;
  bool have_one_order = true;
  bool all_ranks_own_rows = true;
  bool readers_precede_parts = true;
  bool ranks_meet = true;
};

struct Store {
  int32_t target;
  int64_t place;
  int32_t value;
  size_t call;
  int32_t row;
};

struct Read {
  int32_t sender;
  int32_t row;
};

struct CodeStore {
  int32_t target;
  int32_t row;
  int32_t value;
};

struct Rank {
  std::vector<int32_t> memory;
  std::vector<int32_t> codes;
  std::vector<CodeStore> unsent_codes;
  std::vector<CodeStore> unread_codes;
  size_t call = 0;
  int32_t num_blocks = 1;
  std::vector<Store> unsent;
  std::vector<Store> unsent_sums;
  std::vector<Read> unread;
  std::vector<int64_t> uncleared;
  std::vector<int32_t> absent;
  std::vector<int32_t> left;
};

class Ranks {
 public:
  Ranks(const RegionShape& region, std::vector<Call> calls, const Rules& rules,
        uint64_t seed);
  std::string run();

 private:
  int32_t value(size_t call, int32_t sender, int32_t row, bool is_sum) const;
  bool is_owned_by(const Call& call, int32_t row, int32_t rank) const;
  bool sends_sum(const Call& call, int32_t row, int32_t rank) const;
  bool passes(const Call& call, int32_t row, int32_t sender,
              int32_t receiver) const;
  void begin(int32_t rank);
  bool begins_early(size_t call) const;
  int32_t place_of_row(const Call& call, int32_t row, bool is_sum) const;
  Store store_of(size_t call, int32_t sender, int32_t receiver, int32_t row,
                 bool is_sum) const;
  void add_sends(int32_t rank, size_t call);
  void add_sums(int32_t rank, int32_t row);
  void add_codes(int32_t rank, int32_t row);
  void add_reads(int32_t rank);
  int32_t rows_before(int32_t rank, int32_t row) const;
  bool may_send(int32_t rank, const Store& store) const;
  bool is_producing(const Rank& rank) const;
  bool has_read_code(const Rank& rank, int32_t row) const;
  bool have_met(const Rank& rank) const;
  bool has_ended(int32_t rank) const;
  void step();
  void send(int32_t rank);
  void send_sum(Rank& rank);
  void send_code(Rank& rank);
  void deliver();
  void deliver_code();
  void read_code(Rank& rank);
  void read(int32_t rank);
  void take_in(int32_t rank, int32_t row);
  void clear(Rank& rank);
  void end_call(int32_t rank);
  bool is_done(const Rank& rank) const;
  size_t any(size_t count);
  template <typename Item>
  Item take(std::vector<Item>& items, size_t at);

  const RegionShape region_;
  const int32_t world_size_;
  const std::vector<Call> calls_;
  const Rules rules_;
  std::mt19937_64 random_;
  std::vector<Rank> ranks_;
  std::vector<Store> under_way_;
  std::vector<CodeStore> codes_under_way_;
  std::string fault_;
};

}
