#include "native/kernels/route/route.hpp"

#include <algorithm>
#include <string>

#include "native/base/failure.hpp"
#include "native/kernels/blackwell/operations.hpp"
#include "native/kernels/blackwell/stored_rows.hpp"
#include "native/kernels/layout.hpp"
#include "native/kernels/route/many_rows.hpp"
#include "native/kernels/route/parameters.hpp"
#include "native/kernels/rows/checks.hpp"

namespace glm::kernels {
namespace {

constexpr char kRoute[] = "route";
constexpr int32_t kMostScratchRows = 8192;

void expect_router(const glm_route_args& args) {
  expect_range(kRoute, "num_tokens", 0, INT32_MAX, args.num_tokens);
  expect_pointer(kRoute, "router", args.router);
  const glm_matrix& router = *args.router;
  expect_equal(kRoute, "router role", GLM_MATRIX_LINEAR, router.role);
  if (router.dtype != GLM_DTYPE_F32 && router.dtype != GLM_DTYPE_BF16)
    throw Failure(
        GLM_NOT_SUPPORTED,
        "route: expected a router of F32 (0) or BF16 (1), got dtype " +
            std::to_string(router.dtype));
  expect_range(kRoute, "columns", 1, INT32_MAX / 4, router.columns);
  expect_range(kRoute, "experts", 1, routing::kMaxExperts, router.rows);
  int32_t most =
      router.rows < routing::kMaxTopK ? router.rows : routing::kMaxTopK;
  expect_range(kRoute, "top_k", 1, most, args.top_k);
  expect_range(kRoute, "num_shared_experts", 0, routing::kWarpThreads,
               args.num_shared_experts);
}

routing::RouteParameters parameters_of(const glm_route_args& args) {
  const glm_matrix& router = *args.router;
  routing::RouteParameters p = {};
  p.router = static_cast<const uint8_t*>(router.data);
  p.input = static_cast<const __nv_bfloat16*>(args.input);
  p.selection_bias = args.selection_bias;
  p.expert_ids = args.expert_ids;
  p.expert_weights = args.expert_weights;
  p.num_tokens = args.num_tokens;
  p.hidden_size = router.columns;
  p.num_experts = router.rows;
  p.num_fragments =
      static_cast<int32_t>(ceil_divide(router.rows, routing::kFragmentExperts));
  p.num_column_tiles = num_column_tiles(router.dtype, router.columns);
  p.top_k = args.top_k;
  p.num_shared = args.num_shared_experts;
  p.normalise = args.normalise;
  p.scaling_factor = args.scaling_factor;
  return p;
}

}

int64_t route_scratch_bytes(const glm_workspace_shape& shape) {
  int64_t packed =
      blackwell::router_scratch_bytes(routing::kMaxExperts, shape.hidden_size);
  if (shape.top_k <= 0 || shape.max_step_tokens <= routing::kMostClusterRows)
    return packed;
  int64_t rows = std::min(shape.max_step_tokens, kMostScratchRows);
  return std::max(packed, rows * routing::sums_row_bytes(routing::kMaxWarps));
}

void expect_route_shapes(const glm_route_args& args) {
  expect_router(args);
  routing::RouteParameters parameters = parameters_of(args);
  parameters.num_shares = routing::shares_for(parameters);
  if (routing::stages_that_fit(parameters, args.router->dtype,
                               routing::token_blocks_for(args.num_tokens)) < 1)
    throw Failure(GLM_NOT_SUPPORTED,
                  "route: hidden_size: expected rows that fit shared memory "
                  "beside a router of " +
                      std::to_string(parameters.num_experts) +
                      " experts, got " +
                      std::to_string(parameters.hidden_size));
}

void route(const Context& context, const glm_route_args& args) {
  expect_route_shapes(args);
  expect_pointer(kRoute, "router data", args.router->data);
  if (args.num_tokens == 0) return;
  expect_pointer(kRoute, "input", args.input);
  expect_pointer(kRoute, "selection_bias", args.selection_bias);
  expect_pointer(kRoute, "expert_ids", args.expert_ids);
  expect_pointer(kRoute, "expert_weights", args.expert_weights);
  routing::RouteParameters parameters = parameters_of(args);
  int32_t dtype = args.router->dtype;
  if (routing::has_many_rows(context, parameters))
    return routing::route_many_rows(context, dtype, parameters);
  if (blackwell::multiplies(context, dtype))
    parameters.router = blackwell::packed_router(context, *args.router);
  routing::launch_route(context.stream, dtype, parameters);
}

}
