#include <algorithm>
#include <chrono>
#include <thread>

#include "native/backends/cuda/checked.hpp"
#include "native/backends/cuda/lifecycle.hpp"
#include "native/base/failure.hpp"
#include "native/kernels/measure_read/measure_read.hpp"

namespace glm::cuda {
namespace {

using Clock = std::chrono::steady_clock;
using Span = Clock::duration;

constexpr int64_t kLeastBytesRead = int64_t{16} << 30;
constexpr Span kSpin = std::chrono::microseconds(100);
constexpr Span kLongestNap = std::chrono::microseconds(200);
constexpr int32_t kNapsInWait = 16;
constexpr Span kGrace = std::chrono::seconds(1);

constexpr Span nap_after(Span waited) {
  return waited < kSpin ? Span::zero()
                        : std::min(waited / kNapsInWait, kLongestNap);
}

static_assert(nap_after(kSpin / 2) == Span::zero());
static_assert(nap_after(16 * kSpin) == kSpin);
static_assert(nap_after(1000 * kSpin) == kLongestNap);

cw_event* event_of(const char* where, void* event) {
  expect_pointer(where, "event", event);
  return static_cast<cw_event*>(event);
}

bool has_passed(const char* where, cw_event* event) {
  int32_t passed = 0;
  check_call(cwCudaEventQuery(event, &passed), where);
  return passed;
}

class Patience {
 public:
  explicit Patience(const glm_device& device) : device_(device) {}

  bool has_ended(Clock::time_point now) {
    if (device_.peers == nullptr || device_.peers->group().is_running())
      return false;
    if (!has_stopped_) stopped_at_ = now;
    has_stopped_ = true;
    return now - stopped_at_ > kGrace;
  }

 private:
  const glm_device& device_;
  Clock::time_point stopped_at_;
  bool has_stopped_ = false;
};

struct Event {
  Event() { check_call(cwCudaEventCreate(&handle), "measure_read"); }
  ~Event() { cwCudaEventDestroy(handle); }
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;
  cw_event* handle = nullptr;
};

}

void event_create(glm_device&, void** event) {
  expect_pointer("event_create", "event", event);
  cw_event* made = nullptr;
  check_call(cwCudaEventCreate(&made), "event_create");
  *event = made;
}

void event_record(glm_device& device, void* event) {
  const char* where = "event_record";
  expect_no_capture(device, where);
  check_call(cwCudaEventRecord(event_of(where, event), wrapped(device.stream)),
             where);
}

void event_synchronise(glm_device& device, void* event) {
  const char* where = "event_synchronise";
  expect_no_capture(device, where);
  cw_event* awaited = event_of(where, event);
  const auto begin = Clock::now();
  Patience patience(device);
  while (!has_passed(where, awaited)) {
    const auto now = Clock::now();
    if (patience.has_ended(now)) break;
    std::this_thread::sleep_for(nap_after(now - begin));
  }
  expect_group(device, where);
}

void event_elapsed(glm_device&, void* begin, void* end, float* milliseconds) {
  const char* where = "event_elapsed";
  expect_pointer(where, "milliseconds", milliseconds);
  check_call(cwCudaEventElapsed(event_of(where, begin), event_of(where, end),
                                milliseconds),
             where);
}

void event_free(glm_device&, void* event) {
  if (event == nullptr) return;
  check_call(cwCudaEventDestroy(static_cast<cw_event*>(event)), "event_free");
}

void measure_read(glm_device& device, const void* memory, int64_t bytes,
                  double* bytes_per_second) {
  const char* where = "measure_read";
  expect_no_capture(device, where);
  expect_pointer(where, "memory", memory);
  expect_pointer(where, "bytes_per_second", bytes_per_second);
  expect_range(where, "bytes", 16, INT64_MAX, bytes);
  const kernels::Context context = context_of(device, kPlacement);
  const int64_t repeats = (kLeastBytesRead + bytes - 1) / bytes;
  Event begin, end;
  kernels::read_memory(context, memory, bytes);
  check_call(cwCudaEventRecord(begin.handle, wrapped(device.stream)), where);
  for (int64_t i = 0; i < repeats; ++i)
    kernels::read_memory(context, memory, bytes);
  check_call(cwCudaEventRecord(end.handle, wrapped(device.stream)), where);
  check_call(cwCudaEventSync(end.handle), where);
  float milliseconds = 0;
  check_call(cwCudaEventElapsed(begin.handle, end.handle, &milliseconds),
             where);
  *bytes_per_second = static_cast<double>(repeats) *
                      static_cast<double>(bytes) / (1e-3 * milliseconds);
}

}
