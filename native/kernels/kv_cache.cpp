#include "native/kernels/kv_cache.hpp"

#include <string>

#include "native/base/failure.hpp"
#include "native/kernels/layout.hpp"

namespace glm::kernels {
namespace {

void refuse(const char* where, const char* what, const std::string& expected,
            int64_t came) {
  throw Failure(GLM_NOT_SUPPORTED, std::string(where) + ": " + what +
                                       ": expected " + expected + ", got " +
                                       std::to_string(came));
}

}

void expect_cache_shape(const char* where, const glm_kv_cache* cache) {
  expect_pointer(where, "cache", cache);
  expect_range(where, "num_layers", 1, INT32_MAX, cache->num_layers);
  expect_range(where, "num_pages", 1, INT32_MAX, cache->num_pages);
  expect_range(where, "num_kv_heads", 1, INT32_MAX, cache->num_kv_heads);
  expect_range(where, "page_size", 1, INT32_MAX, cache->page_size);
  expect_range(where, "head_dim", 1, INT32_MAX, cache->head_dim);
  if (cache->dtype != GLM_DTYPE_BF16 && cache->dtype != GLM_DTYPE_F8_E4M3)
    refuse(where, "cache dtype", "BF16 (1) or E4M3 (2)", cache->dtype);
  if (cache->page_size % kBlockTokens != 0)
    refuse(where, "page_size", "a multiple of 16", cache->page_size);
  if (cache->head_dim > kMaxHeadDim)
    refuse(where, "head_dim", "at most " + std::to_string(kMaxHeadDim),
           cache->head_dim);
}

void expect_kv_cache(const char* where, const glm_kv_cache* cache) {
  expect_cache_shape(where, cache);
  expect_pointer(where, "cache.data", cache->data);
  expect_equal(where, "cache.data modulo 128", 0,
               reinterpret_cast<uintptr_t>(cache->data) % kHalfBytes);
  if (cache->dtype != GLM_DTYPE_F8_E4M3 && has_scales(*cache))
    reject(where, "key_scale and value_scale", "null for a BF16 cache",
           "a pointer");
}

bool has_scales(const glm_kv_cache& cache) {
  return cache.key_scale != nullptr || cache.value_scale != nullptr;
}

const float* scales_of_layer(const float* scales, const glm_kv_cache& cache,
                             int32_t layer) {
  return scales == nullptr ? nullptr
                           : scales + int64_t{layer} * cache.num_kv_heads;
}

void expect_layer(const char* where, const glm_kv_cache& cache, int32_t layer) {
  expect_range(where, "layer", 0, cache.num_layers - 1, layer);
}

void expect_group(const char* where, const glm_kv_cache& cache,
                  int32_t num_heads) {
  expect_range(where, "num_heads", 1, INT32_MAX, num_heads);
  expect_range(where, "num_kv_heads", 1, num_heads, cache.num_kv_heads);
  expect_equal(where, "num_heads modulo num_kv_heads", 0,
               num_heads % cache.num_kv_heads);
  const int32_t group = num_heads / cache.num_kv_heads;
  if (group > kMaxGroupHeads)
    refuse(where, "query heads per KV head",
           "at most " + std::to_string(kMaxGroupHeads), group);
}

}
