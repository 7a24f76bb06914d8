#include "native/kernels/pages/pages.hpp"

#include <algorithm>
#include <cstring>
#include <string>

#include "native/backends/cuda/checked.hpp"
#include "native/backends/cuda/lifecycle.hpp"
#include "native/base/failure.hpp"

namespace glm::cuda {
namespace {

void expect_transfer(const glm_device& device, const char* where,
                     const glm_transfer_pages_args& args) {
  expect_no_capture(device, where);
  kernels::expect_cache(where, args.cache);
  kernels::expect_pages(where, "pages", *args.cache, args.pages,
                        args.num_pages);
  if (args.num_pages > 0) expect_pointer(where, "host_data", args.host_data);
}

int32_t pages_at_once(const char* where, int64_t page_bytes) {
  expect_range(where, "bytes of a page", 1, kNumSlots * kSlotBytes, page_bytes);
  return static_cast<int32_t>(
      std::min<int64_t>(kNumSlots * kSlotBytes / page_bytes, INT32_MAX));
}

}

void kv_page_bytes(const glm_kv_cache* cache, int64_t* bytes) {
  expect_pointer("kv_page_bytes", "cache", cache);
  expect_pointer("kv_page_bytes", "bytes", bytes);
  *bytes = kernels::page_bytes(*cache);
}

void save_pages(glm_device& device, const glm_transfer_pages_args& args) {
  const char* where = "save_pages";
  expect_transfer(device, where, args);
  if (args.num_pages == 0) return;
  const int64_t bytes = kernels::page_bytes(*args.cache);
  const int32_t most = pages_at_once(where, bytes);
  const kernels::Context context = context_of(device, kPages);
  uint8_t* staged = device.staging->memory();
  for (int32_t begin = 0; begin < args.num_pages; begin += most) {
    const int32_t count = std::min(most, args.num_pages - begin);
    kernels::transfer_pages(
        context, {args.cache, args.pages + begin, count, staged, true});
    check_call(cwCudaStreamSync(wrapped(device.stream)), where);
    std::memcpy(static_cast<char*>(args.host_data) + begin * bytes, staged,
                static_cast<size_t>(count * bytes));
  }
}

void restore_pages(glm_device& device, const glm_transfer_pages_args& args) {
  const char* where = "restore_pages";
  expect_transfer(device, where, args);
  if (args.num_pages == 0) return;
  const int64_t bytes = kernels::page_bytes(*args.cache);
  const int32_t most = pages_at_once(where, bytes);
  const kernels::Context context = context_of(device, kPages);
  uint8_t* staged = device.staging->memory();
  for (int32_t begin = 0; begin < args.num_pages; begin += most) {
    const int32_t count = std::min(most, args.num_pages - begin);
    check_call(cwCudaStreamSync(wrapped(device.stream)), where);
    std::memcpy(staged,
                static_cast<const char*>(args.host_data) + begin * bytes,
                static_cast<size_t>(count * bytes));
    kernels::transfer_pages(
        context, {args.cache, args.pages + begin, count, staged, false});
  }
  check_call(cwCudaStreamSync(wrapped(device.stream)), where);
}

}
