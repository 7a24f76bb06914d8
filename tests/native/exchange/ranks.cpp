#include "ranks.hpp"

#include <algorithm>
#include <utility>

namespace exchange {

Ranks::Ranks(const RegionShape& region, std::vector<Call> calls,
             const Rules& rules, uint64_t seed)
    : region_(region),
      world_size_(region.world_size),
      calls_(std::move(calls)),
      rules_(rules),
      random_(seed),
      ranks_(static_cast<size_t>(region.world_size)) {
  const auto places = static_cast<size_t>(region.num_places());
  for (Rank& rank : ranks_) {
    rank.memory.assign(places, kAbsent);
    rank.codes.assign(kMostRows, kAbsent);
    rank.num_blocks = 1 + static_cast<int32_t>(any(kMostBlocks));
  }
  for (int32_t rank = 0; rank < world_size_; ++rank) begin(rank);
}

int32_t Ranks::value(size_t call, int32_t sender, int32_t row,
                     bool is_sum) const {
  const int32_t number =
      (static_cast<int32_t>(call) * world_size_ + sender) * kMostRows + row;
  return 2 * number + (is_sum ? 1 : 0);
}

bool Ranks::is_owned_by(const Call& call, int32_t row, int32_t rank) const {
  return call.has_owners && row % world_size_ == rank;
}

bool Ranks::sends_sum(const Call& call, int32_t row, int32_t rank) const {
  return is_owned_by(call, row, rank) && !call.is_scattered;
}

bool Ranks::passes(const Call& call, int32_t row, int32_t sender,
                   int32_t receiver) const {
  return sender != receiver &&
         (!call.has_owners || is_owned_by(call, row, receiver));
}

bool Ranks::begins_early(size_t call) const {
  return !rules_.producers_wait && call > 0 && call < calls_.size() &&
         calls_[call].is_sent_ahead;
}

void Ranks::begin(int32_t number) {
  const size_t call = ranks_[static_cast<size_t>(number)].call;
  if (call == calls_.size()) return;
  if (!begins_early(call)) add_sends(number, call);
  if (begins_early(call + 1)) add_sends(number, call + 1);
  add_reads(number);
}

int32_t Ranks::place_of_row(const Call& call, int32_t row, bool is_sum) const {
  if (!call.has_owners) return row;
  return is_sum ? glm::collectives::place_of_sum(world_size_, row)
                : glm::collectives::place_of_part(world_size_, row);
}

Store Ranks::store_of(size_t call, int32_t sender, int32_t receiver,
                      int32_t row, bool is_sum) const {
  return {receiver,
          region_.place_of(calls_[call].turn, sender, receiver) +
              place_of_row(calls_[call], row, is_sum),
          value(call, sender, row, is_sum), call, row};
}

void Ranks::add_sends(int32_t number, size_t index) {
  const Call& call = calls_[index];
  for (int32_t peer = 0; peer < world_size_; ++peer)
    for (int32_t row = 0; row < call.num_rows; ++row)
      if (passes(call, row, number, peer))
        ranks_[static_cast<size_t>(number)].unsent.push_back(
            store_of(index, number, peer, row, false));
}

void Ranks::add_sums(int32_t number, int32_t row) {
  Rank& rank = ranks_[static_cast<size_t>(number)];
  for (int32_t peer = 0; peer < world_size_; ++peer)
    if (peer != number)
      rank.unsent_sums.push_back(store_of(rank.call, number, peer, row, true));
}

void Ranks::add_codes(int32_t number, int32_t row) {
  Rank& rank = ranks_[static_cast<size_t>(number)];
  for (int32_t peer = 0; peer < world_size_; ++peer)
    rank.unsent_codes.push_back(
        {peer, row, value(rank.call, number, row, false)});
}

void Ranks::add_reads(int32_t number) {
  Rank& rank = ranks_[static_cast<size_t>(number)];
  const Call& call = calls_[rank.call];
  rank.absent.assign(static_cast<size_t>(call.num_rows), 0);
  rank.left = rank.absent;
  for (int32_t row = 0; row < call.num_rows; ++row) {
    const auto at = static_cast<size_t>(row);
    for (int32_t peer = 0; peer < world_size_; ++peer) {
      const bool is_read = passes(call, row, peer, number) ||
                           (peer != number && sends_sum(call, row, peer));
      if (!is_read) continue;
      rank.unread.push_back({peer, row});
      ++rank.absent[at];
    }
    const int32_t num_sums = sends_sum(call, row, number) ? world_size_ - 1 : 0;
    rank.left[at] = rank.absent[at] + num_sums;
  }
}

int32_t Ranks::rows_before(int32_t number, int32_t row) const {
  const Rank& rank = ranks_[static_cast<size_t>(number)];
  const bool is_backwards = !rules_.have_one_order && number % 2 == 1;
  int32_t count = 0;
  for (int32_t other = row % rank.num_blocks;
       other < calls_[rank.call].num_rows; other += rank.num_blocks)
    if ((is_backwards ? other > row : other < row) &&
        rank.left[static_cast<size_t>(other)] > 0)
      ++count;
  return count;
}

bool Ranks::may_send(int32_t number, const Store& store) const {
  const Rank& rank = ranks_[static_cast<size_t>(number)];
  if (rules_.readers_precede_parts && !has_read_code(rank, store.row))
    return false;
  return calls_[store.call].is_sent_ahead ||
         rows_before(number, store.row) <= kRowsUnderWay;
}

bool Ranks::has_read_code(const Rank& rank, int32_t row) const {
  return std::none_of(
      rank.unread_codes.begin(), rank.unread_codes.end(),
      [row](const CodeStore& unread) { return unread.row == row; });
}

bool Ranks::have_met(const Rank& rank) const {
  if (!rules_.ranks_meet || !calls_[rank.call].has_codes) return true;
  return codes_under_way_.empty() &&
         std::all_of(ranks_.begin(), ranks_.end(), [&](const Rank& other) {
           return other.call > rank.call ||
                  (other.call == rank.call && is_done(other));
         });
}

bool Ranks::is_producing(const Rank& rank) const {
  return rules_.producers_wait && calls_[rank.call].is_sent_ahead &&
         !rank.unsent.empty();
}

bool Ranks::has_ended(int32_t rank) const {
  return ranks_[static_cast<size_t>(rank)].call == calls_.size();
}

size_t Ranks::any(size_t count) { return random_() % count; }

template <typename Item>
Item Ranks::take(std::vector<Item>& items, size_t at) {
  std::swap(items[at], items.back());
  const Item item = items.back();
  items.pop_back();
  return item;
}

void Ranks::send(int32_t number) {
  Rank& rank = ranks_[static_cast<size_t>(number)];
  if (rank.unsent.empty()) return;
  const size_t at = any(rank.unsent.size());
  if (may_send(number, rank.unsent[at]))
    under_way_.push_back(take(rank.unsent, at));
}

void Ranks::send_sum(Rank& rank) {
  if (rank.unsent_sums.empty()) return;
  const Store store = take(rank.unsent_sums, any(rank.unsent_sums.size()));
  --rank.left[static_cast<size_t>(store.row)];
  under_way_.push_back(store);
}

void Ranks::send_code(Rank& rank) {
  if (rank.unsent_codes.empty()) return;
  const size_t at = any(rank.unsent_codes.size());
  if (has_read_code(rank, rank.unsent_codes[at].row))
    codes_under_way_.push_back(take(rank.unsent_codes, at));
}

void Ranks::deliver_code() {
  if (codes_under_way_.empty()) return;
  const CodeStore store = take(codes_under_way_, any(codes_under_way_.size()));
  ranks_[static_cast<size_t>(store.target)]
      .codes[static_cast<size_t>(store.row)] = store.value;
}

void Ranks::read_code(Rank& rank) {
  if (rank.unread_codes.empty()) return;
  const CodeStore expected =
      take(rank.unread_codes, any(rank.unread_codes.size()));
  if (rank.codes[static_cast<size_t>(expected.row)] != expected.value)
    fault_ = "a rank read the codes of another exchange";
}

void Ranks::deliver() {
  if (under_way_.empty()) return;
  const Store store = take(under_way_, any(under_way_.size()));
  int32_t& word = ranks_[static_cast<size_t>(store.target)]
                      .memory[static_cast<size_t>(store.place)];
  if (word != kAbsent) fault_ = "a word was overwritten before it was cleared";
  word = store.value;
}

void Ranks::read(int32_t number) {
  Rank& rank = ranks_[static_cast<size_t>(number)];
  if (rank.unread.empty() || is_producing(rank)) return;
  const size_t at = any(rank.unread.size());
  const auto [sender, row] = rank.unread[at];
  if (rows_before(number, row) > 0) return;
  const Call& call = calls_[rank.call];
  const bool is_sum = sends_sum(call, row, sender);
  const int64_t where = region_.place_of(call.turn, sender, number) +
                        place_of_row(call, row, is_sum);
  const int32_t word = rank.memory[static_cast<size_t>(where)];
  if (word == kAbsent) return;
  if (word != value(rank.call, sender, row, is_sum))
    fault_ = "a rank took the word of another exchange";
  take(rank.unread, at);
  rank.uncleared.push_back(where);
  take_in(number, row);
}

void Ranks::take_in(int32_t number, int32_t row) {
  Rank& rank = ranks_[static_cast<size_t>(number)];
  int32_t& absent = rank.absent[static_cast<size_t>(row)];
  const bool is_first = absent == world_size_ - 1;
  --absent;
  --rank.left[static_cast<size_t>(row)];
  if (!is_owned_by(calls_[rank.call], row, number) ||
      !(rules_.owners_wait ? absent == 0 : is_first))
    return;
  if (calls_[rank.call].has_codes) add_codes(number, row);
  if (!calls_[rank.call].is_scattered) add_sums(number, row);
}

void Ranks::clear(Rank& rank) {
  if (!rank.uncleared.empty())
    rank.memory[static_cast<size_t>(
        take(rank.uncleared, any(rank.uncleared.size())))] = kAbsent;
}

bool Ranks::is_done(const Rank& rank) const {
  return rank.unsent.empty() && rank.unsent_sums.empty() &&
         rank.unsent_codes.empty() && rank.unread_codes.empty() &&
         rank.unread.empty() && rank.uncleared.empty();
}

void Ranks::end_call(int32_t number) {
  Rank& rank = ranks_[static_cast<size_t>(number)];
  const Call& call = calls_[rank.call];
  if (call.has_codes)
    for (int32_t row = 0; row < call.num_rows; ++row)
      rank.unread_codes.push_back(
          {number, row, value(rank.call, row % world_size_, row, false)});
  ++rank.call;
  begin(number);
}

void Ranks::step() {
  const auto number =
      static_cast<int32_t>(any(static_cast<size_t>(world_size_)));
  Rank& rank = ranks_[static_cast<size_t>(number)];
  if (has_ended(number)) return deliver();
  switch (any(8)) {
    case 0:
      send(number);
      break;
    case 1:
      deliver();
      break;
    case 2:
      read(number);
      break;
    case 3:
      send_sum(rank);
      break;
    case 4:
      send_code(rank);
      break;
    case 5:
      deliver_code();
      break;
    case 6:
      read_code(rank);
      break;
    default:
      clear(rank);
  }
  if (is_done(rank) && have_met(rank)) end_call(number);
}

std::string Ranks::run() {
  const int64_t most_steps = 1600000;
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
