#ifndef GLM_KERNELS_STREAM_PRODUCT_PLAN_HPP
#define GLM_KERNELS_STREAM_PRODUCT_PLAN_HPP

#include <cstdint>

#include "native/kernels/stream/product_args.hpp"

namespace glm::kernels::stream {

constexpr int32_t kMaxSplit = 8;
constexpr int32_t kMaxColumns = 64;
constexpr int64_t kSharedBudget = 200 * 1024;

struct ProductPlan {
  int32_t split;
  int32_t num_warpgroups;
};

struct SharedLayout {
  int32_t most_tiles;
  int32_t num_stages;
  int64_t fixed_bytes;
};

ProductPlan plan_product(int32_t num_row_tiles, int32_t num_column_tiles);

void apply_plan(const ProductPlan& plan, int32_t num_row_tiles,
                ProductArgs& args);

SharedLayout shared_layout(const ProductPlan& plan, int32_t columns,
                           int32_t num_column_tiles);

int32_t chunk_columns(const char* where, const ProductPlan& plan,
                      int32_t num_column_tiles);

}

#endif
