#include "native/collectives/peer/peer_group.hpp"

#include <cuda.h>
#include <cuda_runtime.h>

#include <algorithm>
#include <chrono>
#include <thread>
#include <utility>

#include "native/base/cuda.hpp"
#include "native/base/driver.hpp"
#include "native/base/failure.hpp"

namespace glm::collectives {
namespace {

constexpr char kWhere[] = "group_create";
constexpr uint64_t kLimitNanoseconds = 3'000'000'000;
constexpr int64_t kMostAhead = 16;
constexpr int32_t kNapsInWait = 16;

[[noreturn]] void refuse(const std::string& text) {
  throw Failure(GLM_NOT_SUPPORTED, std::string(kWhere) + ": " + text);
}

std::string gpu(int32_t ordinal) { return "GPU " + std::to_string(ordinal); }

std::string name_of(int32_t ordinal) {
  cudaDeviceProp properties = {};
  check(cudaGetDeviceProperties(&properties, ordinal), kWhere);
  return properties.name;
}

void expect_same_kind(int32_t first, int32_t other) {
  const std::string expected = name_of(first), came = name_of(other);
  if (expected != came)
    refuse("expected GPUs of the same model, got " + gpu(first) + ": " +
           expected + " and " + gpu(other) + ": " + came);
}

void expect_access(int32_t from, int32_t to) {
  int can_access = 0;
  check(cudaDeviceCanAccessPeer(&can_access, from, to), kWhere);
  if (can_access == 0)
    refuse(gpu(from) + " cannot access the memory of " + gpu(to) +
           " (cudaDeviceCanAccessPeer); several ranks need peer access");
}

void expect_own_or_common_gpu(const std::vector<int32_t>& ordinals) {
  const auto ranks_on = [&](int32_t ordinal) {
    return std::count(ordinals.begin(), ordinals.end(), ordinal);
  };
  const int64_t world_size = static_cast<int64_t>(ordinals.size());
  for (const int32_t ordinal : ordinals)
    if (ranks_on(ordinal) != 1 && ranks_on(ordinal) != world_size)
      refuse("expected one GPU per rank or one GPU for all " +
             std::to_string(world_size) + " ranks, got " +
             std::to_string(ranks_on(ordinal)) + " ranks on " + gpu(ordinal));
}

void expect_ordinals(const std::vector<int32_t>& ordinals) {
  int count = 0;
  check(cudaGetDeviceCount(&count), kWhere);
  for (const int32_t ordinal : ordinals)
    if (ordinal < 0 || ordinal >= count)
      refuse(std::to_string(ordinals.size()) + " ranks need " + gpu(ordinal) +
             "; GPUs found: " + std::to_string(count));
  for (const int32_t from : ordinals) {
    expect_same_kind(ordinals.front(), from);
    for (const int32_t to : ordinals)
      if (from != to) expect_access(from, to);
  }
}

void expect_loaded_kernels() {
  static const auto ask = driver_function<decltype(&cuModuleGetLoadingMode)>(
      kWhere, "cuModuleGetLoadingMode");
  CUmoduleLoadingMode mode = CU_MODULE_LAZY_LOADING;
  const CUresult result = ask(&mode);
  if (result != CUDA_SUCCESS)
    throw Failure(GLM_DEVICE_ERROR,
                  std::string(kWhere) +
                      ": cuModuleGetLoadingMode: expected CUDA_SUCCESS (0), "
                      "got " +
                      std::to_string(static_cast<int>(result)));
  if (mode != CU_MODULE_EAGER_LOADING)
    refuse(
        "CUDA lazy loading is enabled, which can deadlock ranks that "
        "wait for each other: set CUDA_MODULE_LOADING=EAGER before the "
        "process first calls CUDA");
}

}

PeerGroup::PeerGroup(std::vector<int32_t> ordinals)
    : ordinals_(std::move(ordinals)),
      threads_(static_cast<int32_t>(ordinals_.size())) {
  expect_own_or_common_gpu(ordinals_);
  if (world_size() > 1) expect_ordinals(ordinals_);
  if (world_size() > 1 && !shares_gpu()) expect_loaded_kernels();
  void* memory = nullptr;
  check(cudaHostAlloc(&memory, sizeof *record_, cudaHostAllocPortable), kWhere);
  record_ = static_cast<uint32_t*>(memory);
  *record_ = kRunning;
}

PeerGroup::~PeerGroup() {
  if (common_stream_ != nullptr) cudaStreamDestroy(common_stream_);
  cudaFreeHost(record_);
}

bool PeerGroup::shares_gpu() const {
  return world_size() > 1 && ordinals_.front() == ordinals_.back();
}

cudaStream_t PeerGroup::common_stream() {
  std::call_once(has_stream_, [&] {
    check(cudaStreamCreateWithFlags(&common_stream_, cudaStreamNonBlocking),
          "device_open");
  });
  return common_stream_;
}

void PeerGroup::enable_access(int32_t rank) const {
  for (const int32_t other : ordinals_) {
    if (other == ordinal(rank)) continue;
    const cudaError_t error = cudaDeviceEnablePeerAccess(other, 0);
    if (error == cudaErrorPeerAccessAlreadyEnabled)
      cudaGetLastError();
    else
      check(error, "device_open");
  }
}

std::vector<SharedMemory> PeerGroup::gather(int32_t rank,
                                            const SharedMemory& mine) {
  std::vector<SharedMemory> all(ordinals_.size());
  std::string problem;
  const glm_status status =
      threads_.all_gather(rank, 1, {sizeof mine, &mine, all.data()}, &problem);
  if (status != GLM_OK) throw Failure(status, "group_bind: " + problem);
  return all;
}

Stop PeerGroup::stop_of(int32_t rank, uint32_t* has_stopped) const {
  return {record_, has_stopped, kLimitNanoseconds, static_cast<uint32_t>(rank)};
}

void PeerGroup::wait_for_slower_ranks(int32_t rank) {
  const int64_t mine = ++num_launched_[static_cast<size_t>(rank)];
  for (int32_t other = 0; other < world_size(); ++other)
    while (mine - num_launched_[static_cast<size_t>(other)] > kMostAhead) {
      expect_running("reduce_add_norm_quantise");
      std::this_thread::yield();
    }
}

void PeerGroup::meet(const char* where, int32_t rank) {
  using Clock = std::chrono::steady_clock;
  const int64_t mine = ++num_meetings_[static_cast<size_t>(rank)];
  const auto begin = Clock::now();
  for (int32_t other = 0; other < world_size(); ++other)
    while (num_meetings_[static_cast<size_t>(other)] < mine) {
      const auto waited = Clock::now() - begin;
      if (waited > std::chrono::nanoseconds(kLimitNanoseconds))
        stop_late(rank, other);
      expect_running(where);
      std::this_thread::sleep_for(waited / kNapsInWait);
    }
}

void PeerGroup::stop_late(int32_t rank, int32_t peer) {
  uint32_t running = kRunning;
  const uint32_t late = kLate | static_cast<uint32_t>(rank) << 8 |
                        static_cast<uint32_t>(peer) << 16;
  __atomic_compare_exchange_n(record_, &running, late, false, __ATOMIC_SEQ_CST,
                              __ATOMIC_SEQ_CST);
}

void PeerGroup::abort() {
  threads_.abort();
  uint32_t running = kRunning;
  __atomic_compare_exchange_n(record_, &running, uint32_t{kAborted}, false,
                              __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
}

bool PeerGroup::is_running() const {
  return __atomic_load_n(record_, __ATOMIC_RELAXED) == kRunning;
}

void PeerGroup::expect_running(const char* where) const {
  const StopRecord record =
      unpacked(__atomic_load_n(record_, __ATOMIC_SEQ_CST));
  if (record.reason == kRunning) return;
  if (record.reason == kAborted)
    throw Failure(GLM_CANCELLED,
                  std::string(where) + ": aborted because another rank failed");
  throw Failure(GLM_DEVICE_ERROR,
                std::string(where) + ": rank " + std::to_string(record.rank) +
                    " waited " + std::to_string(kLimitNanoseconds / 1000000) +
                    " ms for data from rank " + std::to_string(record.peer));
}

}
