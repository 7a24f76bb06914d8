#ifndef GLM_KERNELS_PAGES_HPP
#define GLM_KERNELS_PAGES_HPP

#include "native/kernels/context.hpp"

namespace glm::kernels {

int64_t page_bytes(const glm_kv_cache& cache);
void expect_cache(const char* where, const glm_kv_cache* cache);

void copy_pages(const Context& context, const glm_copy_pages_args& args);

void gather_pages(const Context& context, const glm_kv_cache& cache,
                  const int32_t* pages, int32_t num_pages, void* packed);
void scatter_pages(const Context& context, const glm_kv_cache& cache,
                   const int32_t* pages, int32_t num_pages, const void* packed);

}

#endif
