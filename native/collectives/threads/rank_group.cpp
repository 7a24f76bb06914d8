#include "native/collectives/threads/rank_group.hpp"

#include <algorithm>
#include <cstring>

namespace glm {
namespace {

const char* name_of(Collective collective) {
  switch (collective) {
    case Collective::all_reduce:
      return "all_reduce";
    case Collective::all_gather:
      return "all_gather";
    case Collective::all_to_all:
      return "all_to_all";
    case Collective::none:
      break;
  }
  return "none";
}

std::string describe(const Contribution& contribution) {
  return std::string(name_of(contribution.collective)) + " of " +
         std::to_string(contribution.size) + " x " +
         std::to_string(contribution.second_size);
}

bool agree(const Contribution& a, const Contribution& b) {
  return a.collective == b.collective && a.size == b.size &&
         a.second_size == b.second_size;
}

}

RankGroup::RankGroup(int32_t world_size)
    : world_size_(world_size),
      contributions_(static_cast<size_t>(world_size)) {}

void RankGroup::abort() {
  const std::lock_guard<std::mutex> lock(mutex_);
  aborted_ = true;
  released_.notify_all();
}

bool RankGroup::meet() {
  std::unique_lock<std::mutex> lock(mutex_);
  if (aborted_) return false;
  const uint64_t generation = generation_;
  if (++num_waiting_ == world_size_) {
    num_waiting_ = 0;
    ++generation_;
    released_.notify_all();
    return true;
  }
  released_.wait(lock, [&] { return aborted_ || generation_ != generation; });
  return generation_ != generation;
}

bool RankGroup::all_agree(const Contribution& mine,
                          std::string* problem) const {
  for (int32_t rank = 0; rank < world_size_; ++rank) {
    const Contribution& other = contributions_[static_cast<size_t>(rank)];
    if (agree(mine, other)) continue;
    *problem = "expected every rank to call " + describe(mine) + ", but rank " +
               std::to_string(rank) + " called " + describe(other);
    return false;
  }
  return true;
}

glm_status RankGroup::enter(int32_t rank, const Contribution& contribution,
                            std::string* problem) {
  contributions_[static_cast<size_t>(rank)] = contribution;
  if (!meet()) {
    *problem = std::string(name_of(contribution.collective)) +
               ": the group was aborted";
    return GLM_CANCELLED;
  }
  if (all_agree(contribution, problem)) return GLM_OK;
  return meet() ? GLM_INVALID_ARGUMENT : GLM_CANCELLED;
}

glm_status RankGroup::leave(std::string* problem) {
  if (meet()) return GLM_OK;
  *problem = "the group was aborted during a collective operation";
  return GLM_CANCELLED;
}

void RankGroup::reduce_slice(int32_t rank, int64_t count) const {
  constexpr int64_t kChunk = 1024;
  const int64_t begin = count * rank / world_size_;
  const int64_t end = count * (rank + 1) / world_size_;
  float sum[kChunk];
  for (int64_t first = begin; first < end; first += kChunk) {
    const int64_t length = end - first < kChunk ? end - first : kChunk;
    const size_t bytes = static_cast<size_t>(length) * sizeof(float);
    std::memcpy(sum, static_cast<float*>(contributions_[0].output) + first,
                bytes);
    for (size_t other = 1; other < contributions_.size(); ++other) {
      const float* data =
          static_cast<const float*>(contributions_[other].input) + first;
      for (int64_t i = 0; i < length; ++i) sum[i] += data[i];
    }
    for (const Contribution& each : contributions_)
      std::memcpy(static_cast<float*>(each.output) + first, sum, bytes);
  }
}

void RankGroup::gather_rows(int64_t begin, int64_t num_rows, int64_t row_bytes,
                            void* output) const {
  if (row_bytes == 0) return;
  char* destination = static_cast<char*>(output);
  for (int64_t row = begin; row < begin + num_rows; ++row) {
    for (const Contribution& each : contributions_) {
      std::memcpy(destination,
                  static_cast<const char*>(each.input) + row * row_bytes,
                  static_cast<size_t>(row_bytes));
      destination += row_bytes;
    }
  }
}

glm_status RankGroup::all_reduce(int32_t rank, float* data, int64_t count,
                                 std::string* problem) {
  const glm_status status =
      enter(rank, {Collective::all_reduce, count, 1, data, data}, problem);
  if (status != GLM_OK) return status;
  reduce_slice(rank, count);
  return leave(problem);
}

glm_status RankGroup::all_gather(int32_t rank, int64_t num_rows,
                                 const glm_gathered& array,
                                 std::string* problem) {
  const glm_status status = enter(rank,
                                  {Collective::all_gather, num_rows,
                                   array.row_bytes, array.input, array.output},
                                  problem);
  if (status != GLM_OK) return status;
  gather_rows(0, num_rows, array.row_bytes, array.output);
  return leave(problem);
}

glm_status RankGroup::all_to_all(int32_t rank, const glm_all_to_all_args& args,
                                 std::string* problem) {
  const glm_status status = enter(rank,
                                  {Collective::all_to_all, args.num_rows,
                                   args.row_bytes, args.input, args.output},
                                  problem);
  if (status != GLM_OK) return status;
  const int64_t block_rows = (args.num_rows + world_size_ - 1) / world_size_;
  const int64_t begin = std::min(rank * block_rows, args.num_rows);
  gather_rows(begin, std::min(block_rows, args.num_rows - begin),
              args.row_bytes, args.output);
  return leave(problem);
}

}
