#pragma once

#include "native/kernels/context.hpp"

namespace glm::kernels {

constexpr int64_t kPageBlockBytes = 16 * 1024;

void expect_cache(const char* where, const glm_kv_cache* cache);

void expect_pages(const char* where, const char* what,
                  const glm_kv_cache& cache, const int32_t* pages,
                  int32_t num_pages);

void copy_pages(const Context& context, const glm_copy_pages_args& args);

int64_t blocks_of_page(const glm_kv_cache& cache);
int64_t packed_begin(const glm_kv_cache& cache, int64_t block);

struct PageTransfer {
  const glm_kv_cache* cache = nullptr;
  const int32_t* pages = nullptr;
  int64_t first_block = 0;
  int64_t num_blocks = 0;
  uint8_t* packed = nullptr;
  bool is_save = false;
};

void transfer_pages(const Context& context, const PageTransfer& transfer);

}
