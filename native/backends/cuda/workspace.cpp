#include <array>

#include "native/backends/cuda/checked.hpp"
#include "native/backends/cuda/lifecycle.hpp"
#include "native/backends/cuda/scratch.hpp"
#include "native/base/cuda.hpp"
#include "native/base/failure.hpp"
#include "native/kernels/layout.hpp"

namespace glm::cuda {
namespace {

constexpr int64_t kRegionAlignment = 1024;

std::array<int64_t, kNumRegions> region_bytes(
    const glm_workspace_shape* shape) {
  const char* where = "workspace_bytes";
  expect_pointer(where, "shape", shape);
  expect_equal(where, "struct_size", sizeof(glm_workspace_shape),
               shape->struct_size);
  if (shape->world_size > 1) {
    expect_range(where, "max_step_tokens", 1, INT32_MAX,
                 shape->max_step_tokens);
    expect_range(where, "max_sequences", 1, INT32_MAX, shape->max_sequences);
  }
  std::array<int64_t, kNumRegions> bytes = {};
  for (const ScratchNeed& need : kScratchNeeds)
    bytes[need.region] =
        kernels::round_up(need.bytes(*shape), kRegionAlignment);
  return bytes;
}

}

void workspace_bytes(const glm_workspace_shape* shape, int64_t* bytes) {
  expect_pointer("workspace_bytes", "bytes", bytes);
  *bytes = 0;
  for (const int64_t region : region_bytes(shape)) *bytes += region;
}

void set_workspace(glm_device& device, const glm_workspace_shape* shape,
                   void* memory, int64_t bytes) {
  const char* where = "set_workspace";
  expect_no_capture(device, where);
  int64_t needed = 0;
  workspace_bytes(shape, &needed);
  expect_range(where, "bytes", needed, INT64_MAX, bytes);
  if (needed > 0) {
    expect_pointer(where, "memory", memory);
    check(
        cudaMemsetAsync(memory, 0, static_cast<size_t>(needed), device.stream),
        where);
  }
  const auto regions = region_bytes(shape);
  int64_t offset = 0;
  for (int32_t region = 0; region < kNumRegions; ++region) {
    device.scratch[region] = {static_cast<char*>(memory) + offset,
                              regions[region]};
    offset += regions[region];
  }
  const kernels::Scratch& exchanged = device.scratch[kReduceAddNormQuantise];
  if (device.peers != nullptr)
    device.peers->set_region(
        exchanged.data, exchanged.bytes,
        collectives::region_shape(shape->world_size, shape->max_step_tokens,
                                  shape->max_sequences));
}

}
