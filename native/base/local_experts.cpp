#include "native/base/local_experts.hpp"

#include <string>

#include "native/base/failure.hpp"

namespace glm {

ExpertStack routed_experts(const glm_experts_args& args) {
  return {args.gate_up,          args.down,
          args.gate_up_stride,   args.gate_up_scale_stride,
          args.down_stride,      args.down_scale_stride,
          args.expert_begin,     0,
          args.num_local_experts};
}

ExpertStack shared_expert(const glm_experts_args& args) {
  return {args.shared_gate_up,   args.shared_down,       0, 0, 0, 0,
          args.shared_expert_id, args.num_local_experts, 1};
}

void expect_local_experts(const char* where, int32_t most,
                          const glm_experts_args& args) {
  expect_range(where, "num_local_experts", 0, most, args.num_local_experts);
  expect_range(where, "shared_expert_id", -1, INT32_MAX, args.shared_expert_id);
  if (!has_shared_expert(args)) return;
  expect_range(where, "num_local_experts with a shared expert", 0, most - 1,
               args.num_local_experts);
  const int64_t index = int64_t{args.shared_expert_id} - args.expert_begin;
  if (index >= 0 && index < args.num_local_experts)
    reject(where, "shared_expert_id", "an id that no local routed expert uses",
           std::to_string(args.shared_expert_id));
}

void expect_shared_shapes(const char* where, const glm_experts_args& args) {
  if (!has_shared_expert(args)) return;
  expect_pointer(where, "shared_gate_up", args.shared_gate_up);
  expect_pointer(where, "shared_down", args.shared_down);
  const glm_matrix& gate_up = *args.shared_gate_up;
  const glm_matrix& down = *args.shared_down;
  expect_equal(where, "shared_gate_up role", GLM_MATRIX_GATE_UP, gate_up.role);
  expect_equal(where, "shared_down role", GLM_MATRIX_LINEAR, down.role);
  expect_equal(where, "shared_gate_up dtype", args.gate_up->dtype,
               gate_up.dtype);
  expect_equal(where, "shared_down dtype", args.gate_up->dtype, down.dtype);
  expect_range(where, "shared_down columns", 1, args.down->columns,
               down.columns);
  expect_equal(where, "shared_gate_up rows", 2 * int64_t{down.columns},
               gate_up.rows);
  expect_equal(where, "shared_gate_up columns", args.gate_up->columns,
               gate_up.columns);
  expect_equal(where, "shared_down rows", args.down->rows, down.rows);
  if (gate_up.bias != nullptr || down.bias != nullptr)
    reject(where, "shared expert bias", "none", "a bias");
}

void expect_shared_memory(const char* where, const glm_experts_args& args) {
  if (!has_shared_expert(args)) return;
  const glm_matrix& gate_up = *args.shared_gate_up;
  const glm_matrix& down = *args.shared_down;
  expect_pointer(where, "shared_gate_up data", gate_up.data);
  expect_pointer(where, "shared_down data", down.data);
  if (gate_up.dtype != GLM_DTYPE_F8_E4M3) return;
  expect_pointer(where, "shared_gate_up row_scale", gate_up.row_scale);
  expect_pointer(where, "shared_down row_scale", down.row_scale);
}

}
