#include <chrono>
#include <memory>
#include <new>
#include <string>

#include "device.hpp"
#include "lifecycle.hpp"
#include "native/base/failure.hpp"
#include "platform.hpp"

namespace glm::adapter {
namespace {

using Clock = std::chrono::steady_clock;

struct Event {
  Clock::time_point time;
  bool is_recorded = false;
};

constexpr int64_t kLeastBytesRead = int64_t{256} << 20;

Event& recorded(const char* what, void* event) {
  expect_pointer("event_elapsed", what, event);
  Event& found = *static_cast<Event*>(event);
  if (!found.is_recorded)
    reject("event_elapsed", what, "a recorded event", "an unrecorded event");
  return found;
}

}

void event_create(glm_device&, void** event) {
  expect_pointer("event_create", "event", event);
  *event = new Event;
}

void event_record(glm_device& device, void* event) {
  expect_pointer("event_record", "event", event);
  synchronise(device);
  *static_cast<Event*>(event) = {Clock::now(), true};
}

void event_synchronise(glm_device& device, void* event) {
  expect_pointer("event_synchronise", "event", event);
  synchronise(device);
}

void event_elapsed(glm_device&, void* begin, void* end, float* milliseconds) {
  expect_pointer("event_elapsed", "milliseconds", milliseconds);
  const auto span = recorded("end", end).time - recorded("begin", begin).time;
  *milliseconds = std::chrono::duration<float, std::milli>(span).count();
}

void event_free(glm_device&, void* event) { delete static_cast<Event*>(event); }

void measure_read(glm_device& device, const void* memory, int64_t bytes,
                  double* bytes_per_second) {
  const char* where = "measure_read";
  expect_pointer(where, "memory", memory);
  expect_pointer(where, "bytes_per_second", bytes_per_second);
  expect_range(where, "bytes", 8, INT64_MAX, bytes);
  const int64_t repeats = (kLeastBytesRead + bytes - 1) / bytes;
  *bytes_per_second = static_cast<double>(repeats) *
                      static_cast<double>(bytes) /
                      platform::read_seconds(device, memory, bytes, repeats);
}

}
