#include <cstdint>
#include <iostream>
#include <string>

#include "native/kernels/layout.hpp"
#include "native/kernels/stream/product_plan.hpp"

namespace {

namespace stream = glm::kernels::stream;

constexpr int32_t kMostRows = stream::kMaxTokens;

struct Matrix {
  std::string dtype;
  std::string role;
  int32_t rows;
  int32_t columns;

  stream::MatrixTiles tiles() const {
    const int32_t role_of =
        role == "GATE_UP" ? GLM_MATRIX_GATE_UP : GLM_MATRIX_LINEAR;
    const int32_t dtype_of =
        dtype == "FP8" ? GLM_DTYPE_F8_E4M3 : GLM_DTYPE_BF16;
    return {glm::kernels::num_row_tiles(role_of, rows),
            glm::kernels::num_column_tiles(dtype_of, columns)};
  }
};

int32_t planned_parts(const stream::ProductPlans& plans, int32_t row_tile) {
  for (const stream::ProductPlan& plan : plans)
    if (row_tile < plan.end_tile) return plan.split;
  return plans.back().split;
}

bool is_planned(const stream::MatrixTiles& tiles,
                const stream::PartBands& bands) {
  for (int32_t num_rows = 1; num_rows <= kMostRows; ++num_rows) {
    const stream::ProductPlans plans = stream::plan_product(tiles, num_rows);
    for (int32_t tile = 0; tile < tiles.num_row_tiles; ++tile)
      if (planned_parts(plans, tile) != bands.of_row_tile(tile)) return false;
  }
  return true;
}

}

int main() {
  Matrix matrix;
  while (std::cin >> matrix.dtype >> matrix.role >> matrix.rows >>
         matrix.columns) {
    const stream::MatrixTiles tiles = matrix.tiles();
    const stream::PartBands bands = stream::part_bands(tiles);
    const int32_t last = tiles.num_row_tiles - 1;
    std::cout << bands.of_row_tile(0) << ' ' << bands.of_row_tile(last) << ' '
              << (is_planned(tiles, bands) ? "planned" : "not planned") << '\n';
  }
  return 0;
}
