#pragma once

#include <cstdint>
#include <vector>

#include "native/kernels/stream/product_args.hpp"

namespace glm::kernels::stream {

constexpr int64_t kSharedBudget = 216 * 1024;
constexpr int64_t kHalfSharedBudget = 110 * 1024;
constexpr int32_t kMostPairedColumns = 48;

struct MatrixTiles {
  int32_t num_row_tiles;
  int32_t num_column_tiles;
};

struct ProductPlan {
  int32_t split;
  UnitForm form;
  int32_t first_unit;
  int32_t num_units;
  int32_t end_tile;
  int32_t num_column_tiles;
  int32_t most_pieces;
};

struct ProductLayout {
  ProductShape shape;
  int64_t bytes;
};

using ProductPlans = std::vector<ProductPlan>;

struct PartBands {
  int32_t second_tile = INT32_MAX;
  int32_t num_parts[2] = {1, 1};

  GLM_HOST_DEVICE int32_t of_row_tile(int32_t row_tile) const {
    return num_parts[row_tile < second_tile ? 0 : 1];
  }

  bool is_whole() const { return num_parts[0] == 1 && num_parts[1] == 1; }
};

PartBands part_bands(const MatrixTiles& tiles);

ProductPlans plan_product(const MatrixTiles& tiles, int32_t num_rows);

int32_t product_columns(const ProductPlan& plan, int32_t num_rows);

ProductLayout product_layout(const ProductPlan& plan, int32_t columns,
                             int32_t num_rounds);

}
