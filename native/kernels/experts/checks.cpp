#include "native/kernels/experts/checks.hpp"

#include <cstdint>

#include "native/base/failure.hpp"
#include "native/base/local_experts.hpp"
#include "native/kernels/experts/parameters.hpp"
#include "native/kernels/layout.hpp"
#include "native/kernels/rows/checks.hpp"

namespace glm::kernels::mixture {
namespace {

void expect_matrix(const char* what, const glm_matrix* matrix, int32_t role) {
  expect_pointer(kExperts, what, matrix);
  expect_equal(kExperts, what, role, matrix->role);
  expect_range(kExperts, what, 1, INT32_MAX / 4, matrix->rows);
  expect_range(kExperts, what, 1, INT32_MAX / 4, matrix->columns);
}

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

void expect_expert_shapes(const glm_experts_args& args) {
  expect_range(kExperts, "num_tokens", 0, INT32_MAX, args.num_tokens);
  expect_range(kExperts, "part_of_sum", GLM_NO_PART_OF_SUM,
               GLM_PART_OF_SCATTERED_SUM, args.part_of_sum);
  expect_range(kExperts, "top_k", 1, kMaxTopK, args.top_k);
  expect_local_experts(kExperts, kMaxLocalExperts, args);
  expect_matrix("gate_up", args.gate_up, GLM_MATRIX_GATE_UP);
  expect_range(kExperts, "gate_up dtype", GLM_DTYPE_F32, GLM_DTYPE_F8_E4M3,
               args.gate_up->dtype);
  expect_matrix("down", args.down, GLM_MATRIX_LINEAR);
  expect_equal(kExperts, "down dtype", args.gate_up->dtype, args.down->dtype);
  expect_equal(kExperts, "gate_up rows", 2 * int64_t{args.down->columns},
               args.gate_up->rows);
  expect_equal(kExperts, "down rows", args.gate_up->columns, args.down->rows);
  expect_range(kExperts, "hidden_size", 1, kMaxRowUnits * kSmallDownRows,
               args.gate_up->columns);
  if (args.gate_up->bias != nullptr || args.down->bias != nullptr)
    reject(kExperts, "bias", "none", "a bias");
  expect_shared_shapes(kExperts, args);
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
    return expect_pointer(kExperts, "plain for unquantised experts",
                          args.input.plain);
  expect_pointer(kExperts, "codes for FP8 experts", args.input.codes);
  expect_pointer(kExperts, "row_scale for FP8 experts", args.input.row_scale);
  if (args.num_local_experts == 0) return;
  expect_pointer(kExperts, "gate_up row_scale", args.gate_up->row_scale);
  expect_pointer(kExperts, "down row_scale", args.down->row_scale);
}

}
