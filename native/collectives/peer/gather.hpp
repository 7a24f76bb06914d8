#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "glm/backend.h"
#include "native/collectives/peer/exchange.hpp"

namespace glm::collectives {

struct GatherFlags {
  uint32_t entered[kMaxRanks];
  uint32_t finished[kMaxRanks];
  uint32_t epoch;
  uint32_t num_arrived;
  uint32_t has_stopped;
};

struct Gather {
  int32_t rank;
  int32_t world_size;
  GatherFlags* flags[kMaxRanks];
  int64_t distance[kMaxRanks];
  Stop stop;
};

struct GatherBlocks {
  const char* input;
  char* output;
  int64_t num_rows;
  int64_t block_rows;
  int64_t rows_apart;
  int64_t row_bytes;
  int32_t unit_bytes = 1;
};

struct GatherArrays {
  int32_t count;
  GatherBlocks at[GLM_MAX_GATHERED];
};

void gather(const char* where, cudaStream_t stream, const Gather& gather,
            const GatherArrays& arrays);
void copy_to_ranks(const char* where, cudaStream_t stream, const Gather& gather,
                   const GatherArrays& arrays);

}
