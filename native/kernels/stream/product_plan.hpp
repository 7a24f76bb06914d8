#ifndef GLM_KERNELS_STREAM_PRODUCT_PLAN_HPP
#define GLM_KERNELS_STREAM_PRODUCT_PLAN_HPP

#include <cstdint>

#include "native/kernels/stream/product_args.hpp"

namespace glm::kernels::stream {

constexpr int32_t kMaxColumns = 128;
constexpr int64_t kSharedBudget = 216 * 1024;

struct ProductPlan {
  int32_t split;
  int32_t num_warpgroups;
  int32_t num_units;
  int32_t num_column_tiles;
};

struct SharedLayout {
  ProductShape shape;
  int64_t bytes;
  bool is_deep;
};

ProductPlan plan_product(int32_t num_row_tiles, int32_t num_column_tiles);

ProductPlan plan_with(int32_t num_row_tiles, int32_t num_column_tiles,
                      int32_t split, int32_t num_warpgroups);

SharedLayout shared_layout(const ProductPlan& plan, int32_t columns,
                           int32_t num_rounds);

int32_t product_columns(const ProductPlan& plan, int32_t num_rows,
                        bool has_token_map);

int32_t chunk_columns(const char* where, const ProductPlan& plan,
                      bool has_token_map);

}

#endif
