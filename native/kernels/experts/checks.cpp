#include "native/kernels/experts/checks.hpp"

#include <cstdint>

#include "native/base/failure.hpp"
#include "native/base/local_experts.hpp"
#include "native/kernels/experts/parameters.hpp"
#include "native/kernels/layout.hpp"
#include "native/kernels/rows/checks.hpp"
#include "native/kernels/shapes/shapes.hpp"

namespace glm::kernels::mixture {
namespace {

void expect_strides(const glm_experts_args& args) {
  if (args.num_local_experts < 2) return;
  const glm_matrix& gate_up = *args.gate_up;
  const glm_matrix& down = *args.down;
  expect_range(
      kExperts, "gate_up_stride",
      packed_bytes(gate_up.dtype, gate_up.role, gate_up.rows, gate_up.columns),
      INT64_MAX, args.gate_up_stride);
  expect_range(kExperts, "down_stride",
               packed_bytes(down.dtype, down.role, down.rows, down.columns),
               INT64_MAX, args.down_stride);
  expect_equal(kExperts, "gate_up_stride modulo 16", 0,
               args.gate_up_stride % kChunkBytes);
  expect_equal(kExperts, "down_stride modulo 16", 0,
               args.down_stride % kChunkBytes);
  if (gate_up.dtype != GLM_DTYPE_F8_E4M3) return;
  expect_range(kExperts, "gate_up_scale_stride", gate_up.rows * int64_t{4},
               INT64_MAX, args.gate_up_scale_stride);
  expect_range(kExperts, "down_scale_stride", down.rows * int64_t{4}, INT64_MAX,
               args.down_scale_stride);
}

}

void expect_experts(const glm_experts_args& args) {
  expect_expert_shapes(args);
  expect_shared_memory(kExperts, args);
  expect_strides(args);
}

void expect_memory(const glm_experts_args& args) {
  expect_pointer(kExperts, "output", args.output);
  expect_pointer(kExperts, "expert_ids", args.expert_ids);
  expect_pointer(kExperts, "expert_weights", args.expert_weights);
  if (args.num_local_experts > 0) {
    expect_pointer(kExperts, "gate_up data", args.gate_up->data);
    expect_pointer(kExperts, "down data", args.down->data);
  }
  if (args.gate_up->dtype != GLM_DTYPE_F8_E4M3)
    return expect_pointer(kExperts, "input.plain for unquantized experts",
                          args.input.plain);
  expect_pointer(kExperts, "input.codes for FP8 experts", args.input.codes);
  expect_pointer(kExperts, "input.row_scale for FP8 experts",
                 args.input.row_scale);
  if (args.num_local_experts == 0) return;
  expect_pointer(kExperts, "gate_up row_scale", args.gate_up->row_scale);
  expect_pointer(kExperts, "down row_scale", args.down->row_scale);
}

}
