#include "native/kernels/route/many_rows.hpp"

#include <algorithm>
#include <string>

#include "native/base/failure.hpp"
#include "native/kernels/rows/tensor_map.hpp"

namespace glm::kernels::routing {

namespace {

constexpr int32_t kCapability = 9;
constexpr int32_t kWidths[] = {32, 64, 128};
constexpr int32_t kWidthOfOverhead = 96;

int32_t width_for(int32_t num_multiprocessors, int32_t num_groups,
                  int32_t num_tokens) {
  int64_t tiles_at_once = std::max(num_multiprocessors / kBlocksOfTile, 1);
  int64_t least = INT64_MAX;
  int32_t best = kWidths[0];
  for (int32_t width : kWidths) {
    if (width > widest_of(num_groups)) break;
    int64_t rounds = ceil_divide(ceil_divide(num_tokens, width), tiles_at_once);
    int64_t cost = rounds * (width + kWidthOfOverhead);
    if (cost > least) continue;
    least = cost;
    best = width;
  }
  return best;
}

int64_t rows_that_fit(int64_t scratch_bytes, int32_t num_fragments) {
  return scratch_bytes / sums_row_bytes(num_fragments);
}

RouteParameters rows_of(const RouteParameters& parameters, int32_t begin,
                        int32_t num_rows) {
  RouteParameters p = parameters;
  int64_t routes = int64_t{begin} * (p.num_shared + p.top_k);
  p.input += int64_t{begin} * p.hidden_size;
  p.expert_ids += routes;
  p.expert_weights += routes;
  p.num_tokens = num_rows;
  return p;
}

ManyRows router_of(const Context& context, const RouteParameters& p) {
  ManyRows router = {};
  router.router = p.router;
  router.sums = static_cast<float*>(context.scratch.data);
  router.num_tokens = p.num_tokens;
  router.num_fragments = p.num_fragments;
  router.num_column_tiles = p.num_column_tiles;
  router.num_groups =
      static_cast<int32_t>(ceil_divide(router.num_rows(), kGroupExperts));
  router.width =
      width_for(context.num_multiprocessors, router.num_groups, p.num_tokens);
  return router;
}

CUtensorMap tokens_of(const RouteParameters& p, int32_t width) {
  RowBoxes boxes;
  boxes.data = p.input;
  boxes.element = CU_TENSOR_MAP_DATA_TYPE_BFLOAT16;
  boxes.columns = p.hidden_size;
  boxes.num_rows = p.num_tokens;
  boxes.stride_bytes = int64_t{p.hidden_size} * 2;
  boxes.box_columns = kTokenTileElements;
  boxes.box_rows = width;
  boxes.promotion = CU_TENSOR_MAP_L2_PROMOTION_L2_256B;
  return tensor_map("route", boxes);
}

}

bool has_many_rows(const Context& context, const RouteParameters& p) {
  return context.capability == kCapability && p.num_tokens > kMostClusterRows &&
         p.hidden_size % kChunkElements == 0 &&
         reinterpret_cast<uintptr_t>(p.input) % kChunkBytes == 0 &&
         rows_that_fit(context.scratch.bytes, p.num_fragments) >
             kMostClusterRows;
}

void route_many_rows(const Context& context, int32_t dtype,
                     const RouteParameters& parameters) {
  int64_t most = rows_that_fit(context.scratch.bytes, parameters.num_fragments);
  int32_t step =
      static_cast<int32_t>(std::min<int64_t>(most, parameters.num_tokens));
  for (int32_t begin = 0; begin < parameters.num_tokens; begin += step) {
    RouteParameters p = rows_of(parameters, begin,
                                std::min(step, parameters.num_tokens - begin));
    ManyRows router = router_of(context, p);
    launch_products(context, dtype, tokens_of(p, router.width), router);
    launch_selection(context.stream, p, router.sums);
  }
}

}
