#include "native/backends/adapter/platform.hpp"

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstring>

#include "memory_info.hpp"
#include "native/backends/adapter/host_memory.hpp"

namespace glm::adapter::platform {
namespace {

uint64_t sum_of(const void* memory, int64_t bytes) {
  const char* data = static_cast<const char*>(memory);
  uint64_t total = 0;
  for (int64_t at = 0; at + 8 <= bytes; at += 8) {
    uint64_t word = 0;
    std::memcpy(&word, data + at, 8);
    total += word;
  }
  return total;
}

}

const char kKind[] = "cpu";

int32_t num_devices() { return 1; }

int32_t device_of_rank(int32_t) { return 0; }

void open(glm_device& device, int32_t num_threads) {
  futhark_context_config_set_num_threads(device.config, num_threads);
  device.context = futhark_context_new(device.config);
}

void enter(glm_device&) {}

void describe(glm_device* device, glm_device_info* info) {
  std::snprintf(info->name, sizeof info->name, "CPU");
  if (device == nullptr) return;
  cpu::set_memory_info(info);
  cpu::set_processor_name(info);
}

double read_seconds(glm_device&, const void* memory, int64_t bytes,
                    int64_t repeats) {
  std::atomic<uint64_t> total{sum_of(memory, bytes)};
  const auto begin = std::chrono::steady_clock::now();
  for (int64_t i = 0; i < repeats; ++i) total += sum_of(memory, bytes);
  const auto end = std::chrono::steady_clock::now();
  return std::chrono::duration<double>(end - begin).count();
}

void* allocate(int64_t bytes) { return allocate_host(bytes); }

void release(void* memory) { release_host(memory); }

void copy(const char*, void* destination, const void* source, int64_t bytes) {
  if (bytes > 0) std::memmove(destination, source, static_cast<size_t>(bytes));
}

void clear(const char*, void* memory, int64_t bytes) {
  if (bytes > 0) std::memset(memory, 0, static_cast<size_t>(bytes));
}

}
