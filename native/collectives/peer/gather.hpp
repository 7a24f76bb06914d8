#ifndef GLM_COLLECTIVES_PEER_GATHER_HPP
#define GLM_COLLECTIVES_PEER_GATHER_HPP

#include <cuda_runtime.h>

#include <cstdint>

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
  char* output[kMaxRanks];
  Stop stop;
};

struct GatherBlocks {
  const char* input;
  int64_t num_rows;
  int64_t block_rows;
  int64_t rows_apart;
  int64_t row_bytes;
};

void gather(const char* where, cudaStream_t stream, const Gather& gather,
            const GatherBlocks& blocks);
void copy_to_ranks(const char* where, cudaStream_t stream, const Gather& gather,
                   const GatherBlocks& blocks);

}

#endif
