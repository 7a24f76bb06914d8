#include "native/kernels/pages/pages.hpp"

#include <algorithm>
#include <cstring>

#include "native/backends/cuda/checked.hpp"
#include "native/backends/cuda/lifecycle.hpp"
#include "native/base/cuda.hpp"
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

uint8_t* pinned_address(void* host_data, const char* where) {
  cudaPointerAttributes attributes = {};
  check(cudaPointerGetAttributes(&attributes, host_data), where);
  return attributes.type == cudaMemoryTypeHost
             ? static_cast<uint8_t*>(attributes.devicePointer)
             : nullptr;
}

struct StagedPart {
  kernels::Context context;
  kernels::PageTransfer transfer;
  char* host;
  size_t bytes;

  void to_slot(uint8_t* slot) {
    std::memcpy(slot, host, bytes);
    pass(slot);
  }

  void from_slot(uint8_t* slot) { std::memcpy(host, slot, bytes); }

  void pass(uint8_t* slot) {
    transfer.packed = slot;
    kernels::transfer_pages(context, transfer);
  }
};

void submit(Staging& staging, StagedPart part) {
  if (!part.transfer.is_save)
    return staging.submit(
        [part](uint8_t* slot) mutable { part.to_slot(slot); });
  staging.submit([part](uint8_t* slot) mutable { part.pass(slot); },
                 [part](uint8_t* slot) mutable { part.from_slot(slot); });
}

void transfer_staged(glm_device& device, const kernels::PageTransfer& all,
                     void* host_data) {
  constexpr int64_t kMostBlocks = kSlotBytes / kernels::kPageBlockBytes;
  StagedPart part = {context_of(device, kPages), all, nullptr, 0};
  for (int64_t block = 0; block < all.num_blocks; block += kMostBlocks) {
    const int64_t end = std::min(block + kMostBlocks, all.num_blocks);
    const int64_t begin = kernels::packed_begin(*all.cache, block);
    part.transfer.first_block = block;
    part.transfer.num_blocks = end - block;
    part.host = static_cast<char*>(host_data) + begin;
    part.bytes =
        static_cast<size_t>(kernels::packed_begin(*all.cache, end) - begin);
    submit(*device.staging, part);
  }
  device.staging->finish();
}

void transfer(glm_device& device, const char* where,
              const glm_transfer_pages_args& args, bool is_save) {
  expect_transfer(device, where, args);
  kernels::PageTransfer all = {args.cache, args.pages};
  all.num_blocks = args.num_pages * kernels::blocks_of_page(*args.cache);
  all.is_save = is_save;
  if (all.num_blocks == 0) return;
  all.packed = pinned_address(args.host_data, where);
  if (all.packed != nullptr)
    kernels::transfer_pages(context_of(device, kPages), all);
  else
    transfer_staged(device, all, args.host_data);
  check_call(cwCudaStreamSync(wrapped(device.stream)), where);
}

}

void save_pages(glm_device& device, const glm_transfer_pages_args& args) {
  transfer(device, "save_pages", args, true);
}

void restore_pages(glm_device& device, const glm_transfer_pages_args& args) {
  transfer(device, "restore_pages", args, false);
}

}
