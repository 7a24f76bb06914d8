#include <algorithm>

#include "native/base/cuda.hpp"
#include "native/kernels/layout.hpp"
#include "native/kernels/pages/pages.hpp"
#include "native/kernels/shapes/shapes.hpp"
#include "native/ptx/dependent_launch.hpp"

namespace glm::kernels {
namespace {

constexpr int32_t kThreads = 256;
constexpr int32_t kMostPages = 256;
constexpr int64_t kMostBlocks = 1024;

struct Pages {
  uint8_t* data;
  int32_t num_layers;
  int32_t num_pages;
  int64_t layer_bytes;

  __host__ __device__ int64_t blocks_of_layer() const {
    return ceil_divide(layer_bytes, kPageBlockBytes);
  }

  __host__ __device__ int64_t blocks_of_page() const {
    return num_layers * blocks_of_layer();
  }

  __host__ __device__ int64_t packed_begin(int64_t block) const {
    int64_t layer = block / blocks_of_layer();
    return layer * layer_bytes + block % blocks_of_layer() * kPageBlockBytes;
  }

  __device__ uint8_t* at(int64_t layer, int32_t page) const {
    return data + (layer * num_pages + page) * layer_bytes;
  }
};

struct PageList {
  int32_t ids[kMostPages];
};

PageList list_of(const int32_t* ids, int64_t count) {
  PageList list = {};
  std::copy(ids, ids + count, list.ids);
  return list;
}

__device__ void copy_bytes(uint8_t* destination, const uint8_t* source,
                           int64_t bytes, int32_t index, int32_t count) {
  int64_t step = int64_t{count} * kThreads * kChunkBytes;
  int64_t begin = (int64_t{index} * kThreads + threadIdx.x) * kChunkBytes;
  for (int64_t byte = begin; byte < bytes; byte += step)
    *reinterpret_cast<uint4*>(destination + byte) =
        *reinterpret_cast<const uint4*>(source + byte);
}

__global__ void __launch_bounds__(kThreads)
    copy_pages_kernel(Pages pages, PageList source, PageList destination) {
  ptx::wait_for_predecessor();
  copy_bytes(pages.at(blockIdx.y, destination.ids[blockIdx.x]),
             pages.at(blockIdx.y, source.ids[blockIdx.x]), pages.layer_bytes,
             blockIdx.z, gridDim.z);
}

template <bool is_save>
__global__ void __launch_bounds__(kThreads)
    transfer_pages_kernel(Pages pages, PageList list, int64_t first_block,
                          uint8_t* packed) {
  ptx::wait_for_predecessor();
  int64_t first = first_block % pages.blocks_of_page();
  int64_t block = first + blockIdx.x;
  int64_t layer = block / pages.blocks_of_layer();
  int64_t begin = block % pages.blocks_of_layer() * kPageBlockBytes;
  uint8_t* stored =
      pages.at(layer % pages.num_layers, list.ids[layer / pages.num_layers]) +
      begin;
  uint8_t* outside =
      packed + pages.packed_begin(block) - pages.packed_begin(first);
  copy_bytes(is_save ? outside : stored, is_save ? stored : outside,
             min(pages.layer_bytes - begin, kPageBlockBytes), 0, 1);
}

Pages pages_of(const glm_kv_cache& cache) {
  return {static_cast<uint8_t*>(cache.data), cache.num_layers, cache.num_pages,
          cache.num_kv_heads *
              head_page_bytes(cache.dtype, cache.head_dim, cache.page_size)};
}

void launch_transfer(const Context& context, const PageTransfer& part) {
  Pages pages = pages_of(*part.cache);
  int64_t first_page = part.first_block / pages.blocks_of_page();
  int64_t end_page =
      ceil_divide(part.first_block + part.num_blocks, pages.blocks_of_page());
  LaunchShape shape;
  shape.grid = dim3(static_cast<uint32_t>(part.num_blocks));
  shape.block = dim3(kThreads);
  launch(
      part.is_save ? "save_pages" : "restore_pages", context.stream, shape,
      part.is_save ? transfer_pages_kernel<true> : transfer_pages_kernel<false>,
      pages, list_of(part.pages + first_page, end_page - first_page),
      part.first_block, part.packed);
}

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
  LaunchShape shape;
  shape.block = dim3(kThreads);
  for (int32_t begin = 0; begin < args.num_pages; begin += kMostPages) {
    int32_t count = std::min(kMostPages, args.num_pages - begin);
    shape.grid = dim3(static_cast<uint32_t>(count),
                      static_cast<uint32_t>(pages.num_layers),
                      static_cast<uint32_t>(std::min<int64_t>(
                          pages.blocks_of_layer(), kMostBlocks)));
    launch(where, context.stream, shape, copy_pages_kernel, pages,
           list_of(args.source_pages + begin, count),
           list_of(args.destination_pages + begin, count));
  }
}

int64_t blocks_of_page(const glm_kv_cache& cache) {
  return pages_of(cache).blocks_of_page();
}

int64_t packed_begin(const glm_kv_cache& cache, int64_t block) {
  return pages_of(cache).packed_begin(block);
}

void transfer_pages(const Context& context, const PageTransfer& transfer) {
  Pages pages = pages_of(*transfer.cache);
  PageTransfer part = transfer;
  int64_t end = transfer.first_block + transfer.num_blocks;
  while (part.first_block < end) {
    int64_t page = part.first_block / pages.blocks_of_page();
    int64_t next = std::min(end, (page + kMostPages) * pages.blocks_of_page());
    part.num_blocks = next - part.first_block;
    part.packed = transfer.packed + pages.packed_begin(part.first_block) -
                  pages.packed_begin(transfer.first_block);
    launch_transfer(context, part);
    part.first_block = next;
  }
}

}
