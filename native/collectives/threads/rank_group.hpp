#pragma once

#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <string>
#include <vector>

#include "glm/backend.h"

namespace glm {

enum class Collective { none, all_reduce, all_gather, all_to_all };

struct Contribution {
  Collective collective = Collective::none;
  int64_t size = 0;
  int64_t second_size = 0;
  const void* input = nullptr;
  void* output = nullptr;
};

class RankGroup {
 public:
  explicit RankGroup(int32_t world_size);

  int32_t world_size() const { return world_size_; }
  void abort();
  glm_status all_reduce(int32_t rank, float* data, int64_t count,
                        std::string* problem);
  glm_status all_gather(int32_t rank, int64_t num_rows,
                        const glm_gathered& array, std::string* problem);
  glm_status all_to_all(int32_t rank, const glm_all_to_all_args& args,
                        std::string* problem);

 private:
  bool meet();
  glm_status enter(int32_t rank, const Contribution& contribution,
                   std::string* problem);
  glm_status leave(std::string* problem);
  bool all_agree(const Contribution& mine, std::string* problem) const;
  void reduce_slice(int32_t rank, int64_t count) const;
  void gather_rows(int64_t begin, int64_t num_rows, int64_t row_bytes,
                   void* output) const;

  const int32_t world_size_;
  std::vector<Contribution> contributions_;
  std::mutex mutex_;
  std::condition_variable released_;
  int32_t num_waiting_ = 0;
  uint64_t generation_ = 0;
  bool aborted_ = false;
};

}
