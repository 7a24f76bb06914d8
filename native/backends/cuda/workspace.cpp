#include "native/backends/cuda/checked.hpp"
#include "native/backends/cuda/lifecycle.hpp"
#include "native/backends/cuda/plan/plan.hpp"
#include "native/base/cuda.hpp"
#include "native/base/failure.hpp"

namespace glm::cuda {

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
                                  shape->max_decode_rows));
}

}
