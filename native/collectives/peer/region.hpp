#pragma once

#include <algorithm>
#include <cstdint>

#include "native/collectives/peer/owners.hpp"
#include "native/collectives/peer/peer_rows.hpp"
#include "native/collectives/peer/turns.hpp"

namespace glm::collectives {

constexpr int32_t kMostRows = 8192;
constexpr int64_t kFlagBytes = 1024;
constexpr int64_t kChunkBytes = 16;

struct RegionShape {
  int32_t world_size = 1;
  int32_t num_rows = 0;
  int32_t num_graph_rows = 0;

  int32_t rows_of(int32_t turn) const {
    return turn == kFirstOfGraph ? num_graph_rows : num_rows;
  }
  int32_t places_of(int32_t turn) const {
    return num_places_of(world_size, rows_of(turn));
  }
  int64_t num_places() const {
    return begin_of(kFirstOfGraph) +
           int64_t{num_senders()} * places_of(kFirstOfGraph);
  }
  int64_t place_of(int32_t turn, int32_t sender, int32_t receiver) const {
    const int32_t number = sender < receiver ? sender : sender - 1;
    return begin_of(turn) + int64_t{number} * places_of(turn);
  }

 private:
  int32_t num_senders() const { return world_size - 1; }
  int64_t begin_of(int32_t turn) const {
    return int64_t{turn} * num_senders() * num_places_of(world_size, num_rows);
  }
};

inline bool are_equal(const RegionShape& a, const RegionShape& b) {
  return a.world_size == b.world_size && a.num_rows == b.num_rows &&
         a.num_graph_rows == b.num_graph_rows;
}

inline RegionShape region_shape(int32_t world_size, int32_t max_step_tokens,
                                int32_t max_decode_rows) {
  if (world_size <= 1) return {};
  const int32_t rows = std::min(max_step_tokens, kMostRows);
  return {world_size, rows, std::min(max_decode_rows, rows)};
}

inline int32_t row_chunks(int64_t width) {
  return static_cast<int32_t>((width + kChunkElements - 1) / kChunkElements);
}

inline int64_t region_bytes(const RegionShape& shape, int64_t hidden_size) {
  if (shape.world_size == 1) return 0;
  return kFlagBytes +
         shape.num_places() * row_chunks(hidden_size) * kChunkBytes;
}

}
