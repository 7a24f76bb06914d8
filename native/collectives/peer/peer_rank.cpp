#include "native/collectives/peer/peer_rank.hpp"

#include <string>

#include "native/base/cuda.hpp"
#include "native/base/failure.hpp"
#include "native/collectives/peer/owners.hpp"

namespace glm::collectives {
namespace {

constexpr int32_t kAbsentByte = 0xFF;

static_assert(sizeof(GatherFlags) <= kFlagBytes);
static_assert(sizeof(uint4) == kChunkBytes);

std::string text_of(const PartOfSum& part) {
  return std::to_string(part.num_rows) +
         (part.is_scattered ? " scattered" : "") + " rows of " +
         std::to_string(part.width) + " at address " +
         std::to_string(reinterpret_cast<uintptr_t>(part.delta));
}

bool is_same(const PartOfSum& a, const PartOfSum& b) {
  return a.delta == b.delta && a.num_rows == b.num_rows && a.width == b.width &&
         a.is_scattered == b.is_scattered;
}

}

PeerRows reserve_exchange(PeerRank* rank, const char* where,
                          int32_t part_of_sum, PartOfSum part) {
  if (rank == nullptr || part_of_sum == GLM_NO_PART_OF_SUM) return {};
  part.is_scattered = part_of_sum == GLM_PART_OF_SCATTERED_SUM;
  return rank->reserve_exchange(where, part);
}

PeerRank::PeerRank(PeerGroup& group, int32_t rank)
    : group_(group), rank_(rank) {
  group.enable_access(rank);
}

void PeerRank::set_region(void* data, int64_t bytes, const RegionShape& shape) {
  region_ = static_cast<char*>(data);
  region_bytes_ = bytes;
  region_shape_ = shape;
  memories_.clear();
  reserved_.reset();
}

void PeerRank::bind(void* memory, int64_t bytes, cudaStream_t stream) {
  const char* where = "group_bind";
  char* const begin = static_cast<char*>(memory);
  const SharedMemory mine = {begin, bytes, region_ - begin, region_shape_};
  const bool is_inside =
      region_ >= mine.data && region_ + region_bytes_ <= mine.data + mine.bytes;
  if (region_ == nullptr || !is_inside)
    reject(where, "memory", "memory that contains the workspace",
           region_ == nullptr ? "no workspace" : "other memory");
  check(cudaMemsetAsync(region_, 0, kFlagBytes, stream), where);
  check(
      cudaMemsetAsync(region_ + kFlagBytes, kAbsentByte,
                      static_cast<size_t>(region_bytes_ - kFlagBytes), stream),
      where);
  check(cudaStreamSynchronize(stream), where);
  memories_ = group_.gather(rank_, mine);
  expect_equal_regions(where);
}

void PeerRank::expect_equal_regions(const char* where) const {
  const SharedMemory& mine = memories_[static_cast<size_t>(rank_)];
  for (const SharedMemory& other : memories_)
    if (other.region_offset != mine.region_offset ||
        !are_equal(other.region, mine.region))
      reject(where, "workspace", "the same shape and offset on all ranks",
             "a different one");
}

void PeerRank::expect_bound(const char* where) const {
  if (memories_.empty())
    reject(where, "group", "memory exchanged by group_bind", "none");
  group_.expect_running(where);
}

void PeerRank::meet_on_gpu(const char* where) {
  if (shares_gpu()) group_.meet(where, rank_);
}

template <typename Pointer>
Pointer* PeerRank::at(int32_t peer, Pointer* own) const {
  const SharedMemory& mine = memories_[static_cast<size_t>(rank_)];
  char* address = reinterpret_cast<char*>(own);
  return reinterpret_cast<Pointer*>(memories_[static_cast<size_t>(peer)].data +
                                    (address - mine.data));
}

Stop PeerRank::stop() const {
  GatherFlags* flags = reinterpret_cast<GatherFlags*>(region_);
  return group_.stop_of(rank_, &flags->has_stopped);
}

int64_t PeerRank::distance_to(int32_t peer) const {
  return at(peer, region_) - region_;
}

Exchange PeerRank::exchange_between_ranks(const char* where,
                                          bool is_scattered) const {
  expect_bound(where);
  Exchange exchange = {};
  exchange.rank = rank_;
  exchange.is_scattered = is_scattered;
  for (int32_t peer = 0; peer < world_size(); ++peer)
    exchange.distance[peer] = distance_to(peer);
  return exchange;
}

void PeerRank::expect_in_bound_memory(const char* where, const char* what,
                                      const void* data, int64_t bytes) const {
  expect_bound(where);
  const SharedMemory& mine = memories_[static_cast<size_t>(rank_)];
  const char* begin = static_cast<const char*>(data);
  if (begin < mine.data || begin + bytes > mine.data + mine.bytes)
    reject(where, what, "memory passed to group_bind", "other memory");
}

Exchange PeerRank::next_exchange(const char* where, const PartOfSum& part) {
  Exchange exchange = exchange_between_ranks(where, part.is_scattered);
  if (region_bytes_ < region_bytes(region_shape_, part.width))
    reject(where, "hidden_size", "at most the value planned for the workspace",
           std::to_string(part.width));
  if (!turns_.is_capturing()) group_.wait_for_slower_ranks(rank_);
  const int32_t turn = turns_.next();
  uint4* places = reinterpret_cast<uint4*>(region_ + kFlagBytes);
  auto place = [&](int32_t sender, int32_t receiver) {
    return places + region_shape_.place_of(turn, sender, receiver) *
                        row_chunks(part.width);
  };
  exchange.has_owners =
      part.is_scattered || have_owners(world_size(), part.num_rows);
  exchange.row_chunks = row_chunks(part.width);
  exchange.received = place(rank_ == 0 ? 1 : 0, rank_);
  exchange.chunks_apart = region_shape_.places_of(turn) * exchange.row_chunks;
  exchange.stop = stop();
  for (int32_t peer = 0; peer < world_size(); ++peer)
    if (peer != rank_) exchange.sent[peer] = at(peer, place(rank_, peer));
  return exchange;
}

bool PeerRank::can_send_ahead(const PartOfSum& part) const {
  return !shares_gpu() && part.num_rows <= max_exchange_rows() &&
         part.width % kChunkElements == 0 &&
         reinterpret_cast<uintptr_t>(part.delta) % sizeof(uint4) == 0;
}

void PeerRank::expect_none_reserved(const char* where) const {
  if (!reserved_) return;
  reject(where, "call",
         "reduce_add_norm_quantise for the partial sum already sent, " +
             text_of(reserved_->part),
         "another call");
}

PeerRows PeerRank::reserve_exchange(const char* where, const PartOfSum& part) {
  expect_none_reserved(where);
  if (!can_send_ahead(part)) return {};
  Exchange exchange = next_exchange(where, part);
  exchange.is_sent = true;
  reserved_ = {part, exchange};
  PeerRows rows = {};
  for (int32_t step = 1; step < world_size(); ++step)
    rows.of[rows.count++] = exchange.sent[(rank_ + step) % world_size()];
  if (!exchange.has_owners) return rows;
  rows.num_owners = world_size();
  rows.width = part.width;
  rows.first_owner = world_size() - 1 - rank_;
  return rows;
}

Exchange PeerRank::exchange_of(const char* where, const PartOfSum& part) {
  if (!reserved_) return next_exchange(where, part);
  if (!is_same(reserved_->part, part))
    reject(where, "delta",
           "the partial sum already sent, " + text_of(reserved_->part),
           text_of(part));
  const Exchange exchange = reserved_->exchange;
  reserved_.reset();
  return exchange;
}

int32_t PeerRank::end_graph() {
  const bool is_left = reserved_.has_value();
  reserved_.reset();
  const int32_t last_turn = turns_.end_graph();
  if (is_left)
    reject("graph_end", "last exchange", "reduce_add_norm_quantise",
           "a partial sum that is never added");
  return last_turn;
}

void PeerRank::drop_graph() {
  reserved_.reset();
  turns_.drop_graph();
}

Gather PeerRank::gather_of(const char* where) {
  expect_bound(where);
  Gather gather = {};
  gather.rank = rank_;
  gather.world_size = world_size();
  gather.stop = stop();
  for (int32_t peer = 0; peer < world_size(); ++peer) {
    gather.flags[peer] = at(peer, reinterpret_cast<GatherFlags*>(region_));
    gather.distance[peer] = distance_to(peer);
  }
  return gather;
}

}
