#pragma once

#include <cuda_runtime.h>

#include <cstdint>

struct PagesToStore {
  const int32_t* pages;
  int32_t num_pages;
  int64_t page_bytes;
  const uint8_t* fresh;
  uint8_t* cache;
};

void store_slowly(cudaStream_t stream, const PagesToStore& store);
