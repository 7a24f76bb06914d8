#include "native/backends/cuda/plan/plan.hpp"
#include "native/base/failure.hpp"
#include "native/kernels/layout.hpp"
#include "native/kernels/shapes/shapes.hpp"

namespace glm::cuda {
namespace {

constexpr int64_t kRegionAlignment = 1024;

struct ScratchNeed {
  Region region;
  int64_t (*bytes)(const glm_workspace_shape& shape);
};

constexpr ScratchNeed kScratchNeeds[] = {
    {kReduceAddNormQuantise, kernels::reduce_add_norm_quantise_scratch_bytes},
    {kLinear, kernels::linear_scratch_bytes},
    {kAttention, kernels::attention_scratch_bytes},
    {kRoute, kernels::route_scratch_bytes},
    {kExperts, kernels::experts_scratch_bytes},
    {kLogits, kernels::logits_scratch_bytes},
};

}

std::array<int64_t, kNumRegions> region_bytes(
    const glm_workspace_shape* shape) {
  const char* where = "workspace_bytes";
  expect_pointer(where, "shape", shape);
  expect_equal(where, "struct_size", sizeof(glm_workspace_shape),
               shape->struct_size);
  if (shape->world_size > 1) {
    expect_range(where, "max_step_tokens", 1, INT32_MAX,
                 shape->max_step_tokens);
    expect_range(where, "max_decode_rows", 1, INT32_MAX,
                 shape->max_decode_rows);
  }
  std::array<int64_t, kNumRegions> bytes = {};
  for (const ScratchNeed& need : kScratchNeeds)
    bytes[need.region] =
        kernels::round_up(need.bytes(*shape), kRegionAlignment);
  return bytes;
}

void workspace_bytes(const glm_workspace_shape* shape, int64_t* bytes) {
  expect_pointer("workspace_bytes", "bytes", bytes);
  *bytes = 0;
  for (const int64_t region : region_bytes(shape)) *bytes += region;
}

}
