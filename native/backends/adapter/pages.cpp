#include <string>

#include "device.hpp"
#include "native/base/failure.hpp"
#include "operations.hpp"
#include "platform.hpp"

namespace glm::adapter {
namespace {

char* page_at(const glm_kv_cache& cache, int32_t page, int64_t bytes) {
  return static_cast<char*>(cache.data) + page * bytes;
}

void expect_pages(const char* where, const glm_transfer_pages_args& args) {
  expect_cache(where, args.cache);
  expect_range(where, "num_pages", 0, INT32_MAX, args.num_pages);
  expect_each(where, "pages", 0, args.cache->num_pages - 1, args.pages,
              args.num_pages);
  if (args.num_pages > 0) expect_pointer(where, "host_data", args.host_data);
}

}

int64_t page_bytes(const glm_kv_cache& cache) {
  const char* where = "kv_page_bytes";
  expect_range(where, "num_layers", 0, INT32_MAX, cache.num_layers);
  expect_range(where, "page_size", 1, INT32_MAX, cache.page_size);
  expect_range(where, "num_kv_heads", 0, INT32_MAX, cache.num_kv_heads);
  expect_range(where, "head_dim", 0, INT32_MAX, cache.head_dim);
  if (cache.dtype != GLM_DTYPE_F32 && cache.dtype != GLM_DTYPE_F8_E4M3)
    throw Failure(GLM_NOT_SUPPORTED,
                  "KV cache: the device supports only dtypes F32 (0) and "
                  "F8_E4M3 (2), got dtype " +
                      std::to_string(cache.dtype));
  return static_cast<int64_t>(cache.num_layers) * cache.num_kv_heads * 2 *
         cache.head_dim * cache.page_size * element_bytes(where, cache.dtype);
}

void expect_cache(const char* where, const glm_kv_cache* cache) {
  expect_pointer(where, "cache", cache);
  page_bytes(*cache);
  expect_range(where, "cache num_pages", 0, INT32_MAX, cache->num_pages);
  if (cache->num_pages > 0) expect_pointer(where, "cache data", cache->data);
  if (cache->dtype != GLM_DTYPE_F8_E4M3 &&
      (cache->key_scale != nullptr || cache->value_scale != nullptr))
    reject(where, "cache key_scale and value_scale", "null for a float32 cache",
           "a pointer");
}

void copy_pages(glm_device&, const glm_copy_pages_args& args) {
  const char* where = "copy_pages";
  expect_cache(where, args.cache);
  expect_range(where, "num_pages", 0, INT32_MAX, args.num_pages);
  const int64_t last = args.cache->num_pages - 1;
  expect_each(where, "source_pages", 0, last, args.source_pages,
              args.num_pages);
  expect_each(where, "destination_pages", 0, last, args.destination_pages,
              args.num_pages);
  const int64_t bytes = page_bytes(*args.cache);
  for (int32_t i = 0; i < args.num_pages; ++i)
    platform::copy(where,
                   page_at(*args.cache, args.destination_pages[i], bytes),
                   page_at(*args.cache, args.source_pages[i], bytes), bytes);
}

void save_pages(glm_device&, const glm_transfer_pages_args& args) {
  expect_pages("save_pages", args);
  const int64_t bytes = page_bytes(*args.cache);
  char* host = static_cast<char*>(args.host_data);
  for (int32_t i = 0; i < args.num_pages; ++i)
    platform::copy("save_pages", host + i * bytes,
                   page_at(*args.cache, args.pages[i], bytes), bytes);
}

void restore_pages(glm_device&, const glm_transfer_pages_args& args) {
  expect_pages("restore_pages", args);
  const int64_t bytes = page_bytes(*args.cache);
  const char* host = static_cast<const char*>(args.host_data);
  for (int32_t i = 0; i < args.num_pages; ++i)
    platform::copy("restore_pages", page_at(*args.cache, args.pages[i], bytes),
                   host + i * bytes, bytes);
}

}
