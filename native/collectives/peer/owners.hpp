#ifndef GLM_COLLECTIVES_PEER_OWNERS_HPP
#define GLM_COLLECTIVES_PEER_OWNERS_HPP

#include <cstdint>

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

constexpr uint32_t blocks_that_share_owned_rows(uint32_t num_blocks,
                                                uint32_t num_rows) {
  return num_rows > num_blocks && num_blocks % 2 == 0 ? num_blocks - 1
                                                      : num_blocks;
}

template <int32_t world_size>
constexpr bool kMayHaveOwners = may_have_owners(world_size);

}

#endif
