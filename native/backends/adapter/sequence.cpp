#include "arrays.hpp"
#include "device.hpp"
#include "host_view.hpp"
#include "operations.hpp"

namespace glm::adapter {
namespace {

void expect_norm_rope_store(const char* where,
                            const glm_norm_rope_store_args& args) {
  expect_cache(where, args.cache);
  const glm_kv_cache& cache = *args.cache;
  const int64_t tokens = args.num_tokens;
  expect_range(where, "layer", 0, cache.num_layers - 1, args.layer);
  expect_range(where, "num_heads", 1, INT32_MAX, args.num_heads);
  expect_range(where, "rotary_dim", 0, cache.head_dim, args.rotary_dim);
  expect_equal(where, "rotary_dim modulo 2", 0, args.rotary_dim % 2);
  expect_indices(where, "positions", 0, INT32_MAX, args.positions, tokens);
  expect_indices(where, "slots", -1,
                 int64_t{cache.num_pages} * cache.page_size - 1, args.slots,
                 tokens);
  expect_pointer(where, "qkv", args.qkv);
  expect_pointer(where, "query", args.query);
  if (args.rotary_dim == 0) return;
  expect_pointer(where, "cosine", args.cosine);
  expect_pointer(where, "sine", args.sine);
}

void expect_segments(const char* where, const glm_attention_args& args) {
  const glm_segments& segments = args.segments;
  const glm_kv_cache& cache = *args.cache;
  const int32_t count = segments.num_segments;
  expect_range(where, "rows_per_sequence", 1, INT32_MAX,
               segments.rows_per_sequence);
  expect_pointer(where, "page_table", segments.page_table);
  if (!platform::kSharesMemory) return;
  expect_each(where, "query_begin", 0, args.num_tokens, segments.query_begin,
              int64_t{count} + 1);
  expect_each(where, "context_length", 0,
              int64_t{segments.page_table_stride} * cache.page_size,
              segments.context_length, count);
  expect_each(where, "table_row", 0, segments.num_table_rows - 1,
              segments.table_row, count);
  expect_pointer(where, "page_table", segments.page_table);
  for (int32_t s = 0; s < count; ++s) {
    const int32_t queries =
        segments.query_begin[s + 1] - segments.query_begin[s];
    expect_range(where, "segment rows", s < segments.num_decode_segments,
                 segments.context_length[s], queries);
    if (s < segments.num_decode_segments)
      expect_equal(where, "decode segment rows", 1, queries);
    const int32_t num_pages =
        (segments.context_length[s] + cache.page_size - 1) / cache.page_size;
    expect_each(where, "page_table", 0, cache.num_pages - 1,
                segments.page_table +
                    int64_t{segments.table_row[s]} * segments.page_table_stride,
                num_pages);
  }
}

struct HeadScales {
  HeadScales(futhark_context* context, const glm_kv_cache& cache)
      : key(context, cache.key_scale, count(cache, cache.key_scale)),
        value(context, cache.value_scale, count(cache, cache.value_scale)) {}

  static int64_t count(const glm_kv_cache& cache, const float* scales) {
    return scales == nullptr ? 0
                             : int64_t{cache.num_layers} * cache.num_kv_heads;
  }

  const Array<float, 1> key, value;
};

template <typename Stored>
Array<Stored, 5> pages_of(futhark_context* context, const glm_kv_cache& cache) {
  return {context,
          static_cast<Stored*>(cache.data),
          cache.num_pages,
          cache.num_layers,
          cache.num_kv_heads,
          2,
          int64_t{cache.head_dim} * cache.page_size};
}

}

void norm_rope_store(glm_device& device, const glm_norm_rope_store_args& args) {
  const char* where = "norm_rope_store";
  expect_range(where, "num_tokens", 0, INT32_MAX, args.num_tokens);
  const int64_t tokens = args.num_tokens;
  if (tokens == 0) return;
  expect_norm_rope_store(where, args);
  const glm_kv_cache& cache = *args.cache;
  const int64_t half = args.rotary_dim / 2;
  const int64_t width =
      (args.num_heads + 2 * int64_t{cache.num_kv_heads}) * cache.head_dim;
  const int64_t cache_size =
      page_bytes(cache) / element_bytes(where, cache.dtype) * cache.num_pages;
  const int64_t positions = most_rows_read_by(args.positions, tokens);
  futhark_context* context = device.context;
  const Array<float, 1> query_norm(
      context, args.query_norm,
      args.query_norm == nullptr ? 0 : cache.head_dim);
  const Array<float, 1> key_norm(context, args.key_norm,
                                 args.key_norm == nullptr ? 0 : cache.head_dim);
  const Array<float, 2> cosine(context, args.cosine, positions, half);
  const Array<float, 2> sine(context, args.sine, positions, half);
  const Array<int32_t, 1> position(context, args.positions, tokens);
  const Array<int32_t, 1> slot(context, args.slots, tokens);
  const Array<float, 2> qkv(context, static_cast<const float*>(args.qkv),
                            tokens, width);
  Array<float, 2> query(context);
  if (cache.dtype == GLM_DTYPE_F8_E4M3) {
    const Array<uint8_t, 1> pages(context, static_cast<uint8_t*>(cache.data),
                                  cache_size);
    const HeadScales scales(context, cache);
    Array<uint8_t, 1> stored(context);
    check_kernel(context, where,
                 futhark_entry_norm_rope_store_fp8(
                     context, query.slot(), stored.slot(), args.num_heads,
                     cache.num_kv_heads, cache.head_dim, cache.num_layers,
                     cache.page_size, args.layer, args.epsilon, query_norm,
                     key_norm, scales.key, scales.value, cosine, sine, position,
                     slot, qkv, pages));
    stored.copy_to(where, cache.data, cache_size);
  } else {
    const Array<float, 1> pages(context, static_cast<float*>(cache.data),
                                cache_size);
    Array<float, 1> stored(context);
    check_kernel(context, where,
                 futhark_entry_norm_rope_store(
                     context, query.slot(), stored.slot(), args.num_heads,
                     cache.num_kv_heads, cache.head_dim, cache.num_layers,
                     cache.page_size, args.layer, args.epsilon, query_norm,
                     key_norm, cosine, sine, position, slot, qkv, pages));
    stored.copy_to(where, cache.data, cache_size);
  }
  query.copy_to(where, args.query,
                tokens * args.num_heads * int64_t{cache.head_dim});
}

void attention(glm_device& device, const glm_attention_args& args) {
  const char* where = "attention";
  expect_range(where, "num_tokens", 0, INT32_MAX, args.num_tokens);
  expect_cache(where, args.cache);
  const glm_kv_cache& cache = *args.cache;
  const glm_segments& segments = args.segments;
  const int64_t tokens = args.num_tokens;
  expect_range(where, "num_segments", 0, INT32_MAX - 1, segments.num_segments);
  expect_range(where, "layer", 0, cache.num_layers - 1, args.layer);
  expect_range(where, "num_heads", 1, INT32_MAX, args.num_heads);
  expect_range(where, "num_kv_heads", 1, args.num_heads, cache.num_kv_heads);
  expect_equal(where, "num_heads modulo num_kv_heads", 0,
               args.num_heads % cache.num_kv_heads);
  if (tokens == 0) return;
  expect_pointer(where, "query", args.query);
  expect_pointer(where, "output", args.output);
  const int64_t width = args.num_heads * int64_t{cache.head_dim};
  if (segments.num_segments == 0) {
    platform::clear(where, args.output,
                    tokens * width * int64_t{sizeof(float)});
    return;
  }
  expect_segments(where, args);
  futhark_context* context = device.context;
  const Array<int32_t, 1> query_begin(context, segments.query_begin,
                                      segments.num_segments + 1);
  const Array<int32_t, 1> context_length(context, segments.context_length,
                                         segments.num_segments);
  const Array<int32_t, 1> table_row(context, segments.table_row,
                                    segments.num_segments);
  const Array<int32_t, 2> page_table(context, segments.page_table,
                                     segments.num_table_rows,
                                     segments.page_table_stride);
  const Array<float, 2> query(context, static_cast<const float*>(args.query),
                              tokens, width);
  Array<float, 2> result(context);
  if (cache.dtype == GLM_DTYPE_F8_E4M3) {
    const HeadScales scales(context, cache);
    check_kernel(
        context, where,
        futhark_entry_attention_fp8(
            context, result.slot(), args.num_heads, cache.page_size,
            cache.head_dim, args.scale, pages_of<uint8_t>(context, cache),
            args.layer, scales.key, scales.value, query_begin, context_length,
            table_row, page_table, query));
  } else {
    check_kernel(context, where,
                 futhark_entry_attention(
                     context, result.slot(), args.num_heads, cache.page_size,
                     cache.head_dim, args.scale,
                     pages_of<float>(context, cache), args.layer, query_begin,
                     context_length, table_row, page_table, query));
  }
  result.copy_to(where, args.output, tokens * width);
}

}
