#include <string>

#include "native/base/failure.hpp"
#include "native/kernels/kv_cache.hpp"
#include "native/kernels/layout.hpp"
#include "native/kernels/shapes/shapes.hpp"

namespace glm::kernels {

void expect_norm_rope_store_shapes(const glm_norm_rope_store_args& args) {
  const char* where = "norm_rope_store";
  expect_cache_shape(where, args.cache);
  expect_layer(where, *args.cache, args.layer);
  expect_range(where, "num_heads", 1, INT32_MAX, args.num_heads);
  expect_range(where, "rotary_dim", 0, args.cache->head_dim, args.rotary_dim);
  expect_equal(where, "rotary_dim modulo 2", 0, args.rotary_dim % 2);
}

void expect_attention_shapes(const glm_attention_args& args) {
  const char* where = "attention";
  expect_cache_shape(where, args.cache);
  expect_layer(where, *args.cache, args.layer);
  expect_group(where, *args.cache, args.num_heads);
}

int64_t page_bytes(const glm_kv_cache& cache) {
  const char* where = "kv_page_bytes";
  expect_range(where, "num_layers", 0, 65535, cache.num_layers);
  expect_range(where, "page_size", 1, INT32_MAX, cache.page_size);
  expect_range(where, "num_kv_heads", 0, INT32_MAX, cache.num_kv_heads);
  expect_range(where, "head_dim", 0, INT32_MAX, cache.head_dim);
  if (cache.dtype != GLM_DTYPE_BF16 && cache.dtype != GLM_DTYPE_F8_E4M3)
    throw Failure(
        GLM_NOT_SUPPORTED,
        "KV cache: the CUDA device supports only BF16 (1) and F8_E4M3 "
        "(2), got dtype " +
            std::to_string(cache.dtype));
  if (cache.page_size % kBlockTokens != 0)
    throw Failure(GLM_NOT_SUPPORTED,
                  "KV cache: expected a page_size that is a multiple of 16 on "
                  "the CUDA device, got " +
                      std::to_string(cache.page_size));
  return int64_t{cache.num_layers} * cache.num_kv_heads *
         head_page_bytes(cache.dtype, cache.head_dim, cache.page_size);
}

}
