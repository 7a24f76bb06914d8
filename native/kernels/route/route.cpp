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
#include "native/kernels/shapes/shapes.hpp"

namespace glm::kernels {
namespace {

constexpr char kRoute[] = "route";

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
