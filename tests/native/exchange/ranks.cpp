#include "ranks.hpp"

#include <algorithm>
#include <utility>

namespace exchange {

Ranks::Ranks(const RegionShape& region, std::vector<Call> calls,
             Producers producers, uint64_t seed)
    : region_(region),
      world_size_(region.world_size),
      calls_(std::move(calls)),
      producers_(producers),
      random_(seed),
      ranks_(static_cast<size_t>(region.world_size)) {
  const auto places = static_cast<size_t>(region.num_places());
  for (Rank& rank : ranks_) rank.memory.assign(places, kAbsent);
  for (int32_t rank = 0; rank < world_size_; ++rank) begin(rank);
}

int32_t Ranks::value(size_t call, int32_t sender, int32_t row) const {
  return (static_cast<int32_t>(call) * world_size_ + sender) * kMostRows + row;
}

bool Ranks::begins_early(size_t call) const {
  return producers_ == Producers::do_not_wait && call > 0 &&
         call < calls_.size() && calls_[call].is_sent_ahead;
}

void Ranks::begin(int32_t number) {
  const size_t call = ranks_[static_cast<size_t>(number)].call;
  if (call == calls_.size()) return;
  if (!begins_early(call)) add_sends(number, call);
  if (begins_early(call + 1)) add_sends(number, call + 1);
  add_reads(number);
}

void Ranks::add_sends(int32_t number, size_t index) {
  const Call& call = calls_[index];
  for (int32_t peer = 0; peer < world_size_; ++peer)
    for (int32_t row = 0; row < call.num_rows && peer != number; ++row)
      ranks_[static_cast<size_t>(number)].unsent.push_back(
          {peer, region_.place_of(call.turn, number, peer) + row,
           value(index, number, row)});
}

void Ranks::add_reads(int32_t number) {
  Rank& rank = ranks_[static_cast<size_t>(number)];
  const Call& call = calls_[rank.call];
  for (int32_t peer = 0; peer < world_size_; ++peer)
    for (int32_t row = 0; row < call.num_rows && peer != number; ++row)
      rank.unread.push_back(peer * kMostRows + row);
}

bool Ranks::is_producing(const Rank& rank) const {
  return producers_ == Producers::wait && calls_[rank.call].is_sent_ahead &&
         !rank.unsent.empty();
}

bool Ranks::has_ended(int32_t rank) const {
  return ranks_[static_cast<size_t>(rank)].call == calls_.size();
}

size_t Ranks::any(size_t count) { return random_() % count; }

template <typename Item>
Item Ranks::take_any(std::vector<Item>& items) {
  std::swap(items[any(items.size())], items.back());
  const Item item = items.back();
  items.pop_back();
  return item;
}

void Ranks::send(Rank& rank) {
  if (!rank.unsent.empty()) under_way_.push_back(take_any(rank.unsent));
}

void Ranks::deliver() {
  if (under_way_.empty()) return;
  const Store store = take_any(under_way_);
  int32_t& word = ranks_[static_cast<size_t>(store.target)]
                      .memory[static_cast<size_t>(store.place)];
  if (word != kAbsent) fault_ = "a word was overwritten before it was cleared";
  word = store.value;
}

void Ranks::read(int32_t number) {
  Rank& rank = ranks_[static_cast<size_t>(number)];
  if (rank.unread.empty() || is_producing(rank)) return;
  const size_t at = any(rank.unread.size());
  const int32_t peer = rank.unread[at] / kMostRows;
  const int32_t row = rank.unread[at] % kMostRows;
  const int64_t where =
      region_.place_of(calls_[rank.call].turn, peer, number) + row;
  const int32_t word = rank.memory[static_cast<size_t>(where)];
  if (word == kAbsent) return;
  if (word != value(rank.call, peer, row))
    fault_ = "a rank took the word of another exchange";
  rank.unread[at] = rank.unread.back();
  rank.unread.pop_back();
  rank.uncleared.push_back(where);
}

void Ranks::clear(Rank& rank) {
  if (!rank.uncleared.empty())
    rank.memory[static_cast<size_t>(take_any(rank.uncleared))] = kAbsent;
}

void Ranks::step() {
  const auto number =
      static_cast<int32_t>(any(static_cast<size_t>(world_size_)));
  Rank& rank = ranks_[static_cast<size_t>(number)];
  switch (any(4)) {
    case 0:
      send(rank);
      break;
    case 1:
      deliver();
      break;
    case 2:
      if (!has_ended(number)) read(number);
      break;
    default:
      clear(rank);
  }
  const bool is_done = !has_ended(number) && rank.unsent.empty() &&
                       rank.unread.empty() && rank.uncleared.empty();
  if (!is_done) return;
  ++rank.call;
  begin(number);
}

std::string Ranks::run() {
  const int64_t most_steps = 100000;
  for (int64_t steps = 0; steps < most_steps; ++steps) {
    if (!fault_.empty()) return fault_;
    bool all_ended = under_way_.empty();
    for (int32_t rank = 0; rank < world_size_; ++rank)
      all_ended = all_ended && has_ended(rank);
    if (all_ended) break;
    step();
  }
  for (int32_t rank = 0; rank < world_size_; ++rank) {
    if (!has_ended(rank)) return "a rank waits for ever";
    const auto& memory = ranks_[static_cast<size_t>(rank)].memory;
    if (std::any_of(memory.begin(), memory.end(),
                    [](int32_t word) { return word != kAbsent; }))
      return "a word is left when all ranks have ended";
  }
  return "";
}

}
