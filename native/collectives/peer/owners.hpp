#pragma once

#include <algorithm>
#include <cstdint>

#include "native/base/host_device.hpp"

namespace glm::collectives {

struct OwnedRows {
  int32_t world_size;
  int32_t from;
};

constexpr int32_t kNever = INT32_MAX;
constexpr OwnedRows kOwnedRows[] = {{2, kNever}, {4, 32}, {8, 24}};

constexpr int32_t rows_of_owners(int32_t world_size) {
  for (const OwnedRows& each : kOwnedRows)
    if (each.world_size == world_size) return each.from;
  return kNever;
}

constexpr bool may_have_owners(int32_t world_size) {
  return rows_of_owners(world_size) != kNever;
}

constexpr bool have_owners(int32_t world_size, int32_t num_rows) {
  return may_have_owners(world_size) && num_rows >= rows_of_owners(world_size);
}

constexpr bool every_rank_owns_a_row() {
  for (const OwnedRows& each : kOwnedRows)
    if (each.from < each.world_size) return false;
  return true;
}

static_assert(every_rank_owns_a_row());

GLM_HOST_DEVICE constexpr int32_t place_of_part(int32_t world_size,
                                                int32_t row) {
  return 2 * (row / world_size);
}

GLM_HOST_DEVICE constexpr int32_t place_of_sum(int32_t world_size,
                                               int32_t row) {
  return place_of_part(world_size, row) + 1;
}

constexpr int32_t num_places_of(int32_t world_size, int32_t num_rows) {
  const int32_t with_owners = place_of_part(world_size, num_rows - 1) + 2;
  const int32_t without = std::min(num_rows, rows_of_owners(world_size) - 1);
  return num_rows == 0 ? 0 : std::max(with_owners, without);
}

template <int32_t world_size>
constexpr bool kMayHaveOwners = may_have_owners(world_size);

}
