#include <algorithm>
#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "device.hpp"
#include "native/base/failure.hpp"
#include "native/base/mixed_bits.hpp"
#include "operations.hpp"

namespace glm::cpu {
namespace {

constexpr float kUniformDeviation = 0.57735027f;
constexpr uint8_t kSignBit = 0x80;
constexpr uint8_t kLeastCode = 0x30;
constexpr uint64_t kNumCodes = 16;
constexpr float kCodeDeviation = 1.1587810f;

uint64_t random_bits(uint64_t seed, int64_t row, int64_t column) {
  const uint64_t place =
      static_cast<uint64_t>(row) << 32 | static_cast<uint64_t>(column);
  return mixed(mixed(seed * kGolden + 1) ^ (place * kGolden));
}

float uniform(uint64_t bits, float deviation) {
  const float unit = static_cast<float>(bits >> 40) * 0x1p-23f - 1.0f;
  return unit * deviation / kUniformDeviation;
}

void draw(float deviation, uint64_t bits, float* value) {
  *value = uniform(bits, deviation);
}

void draw(float deviation, uint64_t bits, uint16_t* value) {
  const float wide = uniform(bits, deviation);
  uint32_t word = 0;
  std::memcpy(&word, &wide, 4);
  *value = static_cast<uint16_t>(word >> 16);
}

void draw(float, uint64_t bits, uint8_t* value) {
  const uint8_t sign = bits & 1 ? kSignBit : 0;
  *value = static_cast<uint8_t>(sign | (kLeastCode + (bits >> 8) % kNumCodes));
}

template <typename Element>
void place_elements(glm_device& device, const glm_place_random_args& args,
                    const std::vector<float>& scales) {
  const glm_matrix& matrix = *args.matrix;
  std::vector<Element> row(static_cast<size_t>(matrix.columns));
  for (int32_t r = 0; r < matrix.rows; ++r) {
    for (int32_t c = 0; c < matrix.columns; ++c)
      draw(args.standard_deviation, random_bits(args.seed, r, c),
           &row[static_cast<size_t>(c)]);
    glm_place_rows_args rows = {};
    rows.matrix = &matrix;
    rows.row_begin = r;
    rows.num_rows = 1;
    rows.source = row.data();
    rows.source_row_stride = matrix.columns;
    rows.scale_source = matrix.row_scale == nullptr ? nullptr : scales.data();
    place_rows(device, rows);
  }
}

}

void place_random(glm_device& device, const glm_place_random_args& args) {
  const char* where = "place_random";
  expect_pointer(where, "matrix", args.matrix);
  const glm_matrix& matrix = *args.matrix;
  expect_matrix(where, "matrix", &matrix, matrix.role);
  if (!(args.standard_deviation > 0) || !std::isfinite(args.standard_deviation))
    reject(where, "standard_deviation", "a finite number above 0",
           std::to_string(args.standard_deviation));
  const std::vector<float> scale(1, args.standard_deviation / kCodeDeviation);
  if (matrix.bias != nullptr)
    std::fill(matrix.bias, matrix.bias + matrix.rows, 0.0f);
  switch (element_bytes(where, matrix.dtype)) {
    case 1:
      return place_elements<uint8_t>(device, args, scale);
    case 2:
      return place_elements<uint16_t>(device, args, scale);
    default:
      return place_elements<float>(device, args, scale);
  }
}

}
