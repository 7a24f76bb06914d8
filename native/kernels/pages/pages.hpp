#ifndef GLM_KERNELS_PAGES_HPP
#define GLM_KERNELS_PAGES_HPP

#include "native/kernels/context.hpp"

namespace glm::kernels {

int64_t page_bytes(const glm_kv_cache& cache);
void expect_cache(const char* where, const glm_kv_cache* cache);

void expect_pages(const char* where, const char* what,
                  const glm_kv_cache& cache, const int32_t* pages,
                  int32_t num_pages);

void copy_pages(const Context& context, const glm_copy_pages_args& args);

struct PageTransfer {
  const glm_kv_cache* cache = nullptr;
  const int32_t* pages = nullptr;
  int32_t num_pages = 0;
  uint8_t* packed = nullptr;
  bool is_save = false;
};

void transfer_pages(const Context& context, const PageTransfer& transfer);

}

#endif
