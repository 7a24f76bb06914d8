#pragma once

#include <cuda_runtime.h>

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

#include "native/backends/cuda/plan/plan.hpp"

typedef struct cw_event cw_event;

namespace glm::cuda {

constexpr int32_t kNumSlots = 16;

class Staging {
 public:
  using Step = std::function<void(uint8_t* slot)>;

  Staging(int32_t ordinal, cudaStream_t stream, int32_t num_threads);
  ~Staging();
  Staging(const Staging&) = delete;
  Staging& operator=(const Staging&) = delete;

  void submit(Step enqueue, Step drain = nullptr);
  void finish();
  bool is_idle() const { return num_submitted_ == 0; }

 private:
  struct Work {
    Step enqueue;
    Step drain;
  };

  void run();
  bool take(Work* work, int32_t* slot);
  void perform(const Work& work, int32_t slot);

  int32_t ordinal_;
  cudaStream_t stream_;
  uint8_t* memory_ = nullptr;
  std::vector<cw_event*> events_;
  std::vector<std::thread> threads_;
  std::mutex mutex_;
  std::condition_variable has_work_;
  std::condition_variable has_finished_;
  std::deque<Work> waiting_;
  std::deque<int32_t> free_slots_;
  std::exception_ptr failure_;
  int64_t num_submitted_ = 0;
  int64_t num_running_ = 0;
  bool is_closing_ = false;
};

}
