#include <algorithm>

#include "native/base/cuda.hpp"
#include "native/kernels/layout.hpp"
#include "native/kernels/pages/pages.hpp"
#include "native/ptx/dependent_launch.hpp"

namespace glm::kernels {
namespace {

constexpr int32_t kThreads = 256;
constexpr int32_t kMostPages = 256;

struct Pages {
  uint8_t* data;
  int32_t num_layers;
  int32_t num_pages;
  int64_t layer_page_bytes;

  __device__ uint8_t* at(int32_t layer, int32_t page) const {
    return data + (int64_t{layer} * num_pages + page) * layer_page_bytes;
  }
};

__device__ void copy_block(uint8_t* destination, const uint8_t* source,
                           int64_t bytes) {
  int64_t step = int64_t{gridDim.z} * kThreads * kChunkBytes;
  int64_t begin = (int64_t{blockIdx.z} * kThreads + threadIdx.x) * kChunkBytes;
  for (int64_t byte = begin; byte < bytes; byte += step)
    *reinterpret_cast<uint4*>(destination + byte) =
        *reinterpret_cast<const uint4*>(source + byte);
}

struct PageList {
  int32_t ids[kMostPages];
};

PageList list_of(const int32_t* ids, int32_t count) {
  PageList list = {};
  std::copy(ids, ids + count, list.ids);
  return list;
}

__global__ void __launch_bounds__(kThreads)
    copy_pages_kernel(Pages pages, PageList source, PageList destination) {
  ptx::wait_for_predecessor();
  copy_block(pages.at(blockIdx.y, destination.ids[blockIdx.x]),
             pages.at(blockIdx.y, source.ids[blockIdx.x]),
             pages.layer_page_bytes);
}

template <bool gather>
__global__ void __launch_bounds__(kThreads)
    transfer_pages_kernel(Pages pages, PageList list, uint8_t* packed) {
  ptx::wait_for_predecessor();
  uint8_t* stored = pages.at(blockIdx.y, list.ids[blockIdx.x]);
  uint8_t* outside =
      packed + (int64_t{blockIdx.x} * pages.num_layers + blockIdx.y) *
                   pages.layer_page_bytes;
  copy_block(gather ? outside : stored, gather ? stored : outside,
             pages.layer_page_bytes);
}

Pages pages_of(const glm_kv_cache& cache) {
  return {static_cast<uint8_t*>(cache.data), cache.num_layers, cache.num_pages,
          cache.num_kv_heads *
              head_page_bytes(cache.dtype, cache.head_dim, cache.page_size)};
}

LaunchShape shape_of(const Pages& pages, int32_t num_pages) {
  int64_t blocks =
      ceil_divide(pages.layer_page_bytes, 4 * kThreads * kChunkBytes);
  return {dim3(static_cast<uint32_t>(num_pages),
               static_cast<uint32_t>(pages.num_layers),
               static_cast<uint32_t>(std::min<int64_t>(blocks, 1024))),
          dim3(kThreads)};
}

}

int64_t page_bytes(const glm_kv_cache& cache) {
  const char* where = "kv_page_bytes";
  expect_range(where, "num_layers", 0, 65535, cache.num_layers);
  expect_range(where, "page_size", 1, INT32_MAX, cache.page_size);
  expect_range(where, "num_kv_heads", 0, INT32_MAX, cache.num_kv_heads);
  expect_range(where, "head_dim", 0, INT32_MAX, cache.head_dim);
  if (cache.dtype != GLM_DTYPE_BF16 && cache.dtype != GLM_DTYPE_F8_E4M3)
    throw Failure(GLM_NOT_SUPPORTED,
                  "kv cache: expected dtype BF16 (1) or F8_E4M3 (2) on the "
                  "CUDA device, got " +
                      std::to_string(cache.dtype));
  if (cache.page_size % kBlockTokens != 0)
    throw Failure(GLM_NOT_SUPPORTED,
                  "kv cache: expected a page_size that is a multiple of 16 on "
                  "the CUDA device, got " +
                      std::to_string(cache.page_size));
  return int64_t{cache.num_layers} * cache.num_kv_heads *
         head_page_bytes(cache.dtype, cache.head_dim, cache.page_size);
}

void expect_cache(const char* where, const glm_kv_cache* cache) {
  expect_pointer(where, "cache", cache);
  page_bytes(*cache);
  expect_range(where, "cache num_pages", 0, INT32_MAX, cache->num_pages);
  if (cache->num_pages > 0) expect_pointer(where, "cache data", cache->data);
}

void expect_pages(const char* where, const char* what,
                  const glm_kv_cache& cache, const int32_t* pages,
                  int32_t num_pages) {
  expect_range(where, "num_pages", 0, INT32_MAX, num_pages);
  expect_each(where, what, 0, cache.num_pages - 1, pages, num_pages);
}

void copy_pages(const Context& context, const glm_copy_pages_args& args) {
  const char* where = "copy_pages";
  expect_cache(where, args.cache);
  expect_pages(where, "source_pages", *args.cache, args.source_pages,
               args.num_pages);
  expect_pages(where, "destination_pages", *args.cache, args.destination_pages,
               args.num_pages);
  Pages pages = pages_of(*args.cache);
  for (int32_t begin = 0; begin < args.num_pages; begin += kMostPages) {
    int32_t count = std::min(kMostPages, args.num_pages - begin);
    launch(where, context.stream, shape_of(pages, count), copy_pages_kernel,
           pages, list_of(args.source_pages + begin, count),
           list_of(args.destination_pages + begin, count));
  }
}

void transfer_pages(const Context& context, const PageTransfer& transfer) {
  Pages pages = pages_of(*transfer.cache);
  int64_t bytes = page_bytes(*transfer.cache);
  for (int32_t begin = 0; begin < transfer.num_pages; begin += kMostPages) {
    int32_t count = std::min(kMostPages, transfer.num_pages - begin);
    launch(transfer.is_save ? "save_pages" : "restore_pages", context.stream,
           shape_of(pages, count),
           transfer.is_save ? transfer_pages_kernel<true>
                            : transfer_pages_kernel<false>,
           pages, list_of(transfer.pages + begin, count),
           transfer.packed + begin * bytes);
  }
}

}
