#include "native/backends/cuda/staging.hpp"

#include <algorithm>
#include <utility>

#include "native/backends/cuda/checked.hpp"
#include "native/base/cuda.hpp"

namespace glm::cuda {
namespace {

constexpr size_t kMaxWaiting = 256;
constexpr char kWhere[] = "copy between host and device";

int32_t copy_threads(int32_t wanted) {
  int32_t cores = static_cast<int32_t>(std::thread::hardware_concurrency());
  return std::clamp(wanted > 0 ? wanted : cores, 1, kNumSlots / 2);
}

}

Staging::Staging(int32_t ordinal, cudaStream_t stream, int32_t num_threads)
    : ordinal_(ordinal), stream_(stream), events_(kNumSlots) {
  const char* where = "device_open: staging memory";
  void* memory = nullptr;
  check_call(cwCudaMallocHost(&memory, kNumSlots * kSlotBytes), where);
  memory_ = static_cast<uint8_t*>(memory);
  for (int32_t slot = 0; slot < kNumSlots; ++slot) {
    check_call(cwCudaEventCreate(&events_[slot]), where);
    free_slots_.push_back(slot);
  }
  for (int32_t i = 0; i < copy_threads(num_threads); ++i)
    threads_.emplace_back([this] { run(); });
}

Staging::~Staging() {
  {
    std::lock_guard lock(mutex_);
    is_closing_ = true;
    waiting_.clear();
  }
  has_work_.notify_all();
  for (std::thread& thread : threads_) thread.join();
  for (cw_event* event : events_)
    if (event != nullptr) cwCudaEventDestroy(event);
  cwCudaFreeHost(memory_);
}

void Staging::submit(Step enqueue, Step drain) {
  std::unique_lock lock(mutex_);
  has_finished_.wait(lock, [&] { return waiting_.size() < kMaxWaiting; });
  waiting_.push_back({std::move(enqueue), std::move(drain)});
  ++num_submitted_;
  has_work_.notify_one();
}

void Staging::finish() {
  std::unique_lock lock(mutex_);
  has_finished_.wait(lock,
                     [&] { return waiting_.empty() && num_running_ == 0; });
  num_submitted_ = 0;
  if (failure_ != nullptr)
    std::rethrow_exception(std::exchange(failure_, nullptr));
}

bool Staging::take(Work* work, int32_t* slot) {
  std::unique_lock lock(mutex_);
  has_work_.wait(lock, [&] {
    return is_closing_ || (!waiting_.empty() && !free_slots_.empty());
  });
  if (is_closing_) return false;
  *work = std::move(waiting_.front());
  waiting_.pop_front();
  *slot = free_slots_.front();
  free_slots_.pop_front();
  ++num_running_;
  return true;
}

void Staging::perform(const Work& work, int32_t slot) {
  uint8_t* memory = memory_ + slot * kSlotBytes;
  check_call(cwCudaEventSync(events_[slot]), kWhere);
  work.enqueue(memory);
  check_call(cwCudaEventRecord(events_[slot], wrapped(stream_)), kWhere);
  if (!work.drain) return;
  check_call(cwCudaEventSync(events_[slot]), kWhere);
  work.drain(memory);
}

void Staging::run() {
  Work work;
  for (int32_t slot = 0; take(&work, &slot);) {
    std::exception_ptr failure;
    try {
      check(cudaSetDevice(ordinal_), kWhere);
      check_call(cwCudaSetDevice(ordinal_), kWhere);
      perform(work, slot);
    } catch (const std::exception&) {
      failure = std::current_exception();
    }
    std::lock_guard lock(mutex_);
    if (failure_ == nullptr) failure_ = failure;
    free_slots_.push_back(slot);
    --num_running_;
    has_work_.notify_one();
    has_finished_.notify_all();
  }
}

}
