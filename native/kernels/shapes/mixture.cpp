#include <string>

#include "native/base/failure.hpp"
#include "native/base/local_experts.hpp"
#include "native/kernels/experts/control.hpp"
#include "native/kernels/layout.hpp"
#include "native/kernels/route/shared_plan.hpp"
#include "native/kernels/shapes/shapes.hpp"

namespace glm::kernels {
namespace {

constexpr char kRoute[] = "route";
constexpr char kExperts[] = "experts";

void expect_router(const glm_route_args& args) {
  expect_range(kRoute, "num_tokens", 0, INT32_MAX, args.num_tokens);
  expect_pointer(kRoute, "router", args.router);
  const glm_matrix& router = *args.router;
  expect_equal(kRoute, "router role", GLM_MATRIX_LINEAR, router.role);
  if (router.dtype != GLM_DTYPE_F32 && router.dtype != GLM_DTYPE_BF16)
    throw Failure(
        GLM_NOT_SUPPORTED,
        "route: expected a router with dtype F32 (0) or BF16 (1), got dtype " +
            std::to_string(router.dtype));
  expect_range(kRoute, "columns", 1, INT32_MAX / 4, router.columns);
  expect_range(kRoute, "experts", 1, routing::kMaxExperts, router.rows);
  int32_t most =
      router.rows < routing::kMaxTopK ? router.rows : routing::kMaxTopK;
  expect_range(kRoute, "top_k", 1, most, args.top_k);
  expect_range(kRoute, "num_shared_experts", 0, routing::kWarpThreads,
               args.num_shared_experts);
}

void expect_matrix(const char* what, const glm_matrix* matrix, int32_t role) {
  expect_pointer(kExperts, what, matrix);
  expect_equal(kExperts, what, role, matrix->role);
  expect_range(kExperts, what, 1, INT32_MAX / 4, matrix->rows);
  expect_range(kExperts, what, 1, INT32_MAX / 4, matrix->columns);
}

}

void expect_route_shapes(const glm_route_args& args) {
  expect_router(args);
  const glm_matrix& router = *args.router;
  const int32_t num_fragments =
      static_cast<int32_t>(ceil_divide(router.rows, routing::kFragmentExperts));
  const routing::RouterTiles tiles = {
      num_fragments, num_column_tiles(router.dtype, router.columns),
      routing::shares_for(args.num_tokens, num_fragments)};
  if (routing::stages_that_fit(tiles, router.dtype,
                               routing::token_blocks_for(args.num_tokens)) < 1)
    throw Failure(GLM_NOT_SUPPORTED,
                  "route: hidden_size: expected a value that fits in shared "
                  "memory with " +
                      std::to_string(router.rows) + " experts, got " +
                      std::to_string(router.columns));
}

void expect_expert_shapes(const glm_experts_args& args) {
  expect_range(kExperts, "num_tokens", 0, INT32_MAX, args.num_tokens);
  expect_range(kExperts, "part_of_sum", GLM_NO_PART_OF_SUM,
               GLM_PART_OF_SCATTERED_SUM, args.part_of_sum);
  expect_range(kExperts, "top_k", 1, mixture::kMaxTopK, args.top_k);
  expect_local_experts(kExperts, mixture::kMaxLocalExperts, args);
  expect_matrix("gate_up", args.gate_up, GLM_MATRIX_GATE_UP);
  expect_product_dtype(kExperts, "gate_up dtype", GLM_DTYPE_F8_E4M3,
                       args.gate_up->dtype);
  expect_matrix("down", args.down, GLM_MATRIX_LINEAR);
  expect_equal(kExperts, "down dtype", args.gate_up->dtype, args.down->dtype);
  expect_equal(kExperts, "gate_up rows", 2 * int64_t{args.down->columns},
               args.gate_up->rows);
  expect_equal(kExperts, "down rows", args.gate_up->columns, args.down->rows);
  expect_range(kExperts, "hidden_size", 1,
               mixture::kMaxRowUnits * mixture::kSmallDownRows,
               args.gate_up->columns);
  if (args.gate_up->bias != nullptr || args.down->bias != nullptr)
    reject(kExperts, "bias", "none", "a bias");
  expect_shared_shapes(kExperts, args);
}

}
