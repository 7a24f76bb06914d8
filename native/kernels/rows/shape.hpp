#pragma once

#include <cstdint>
#include <initializer_list>
#include <type_traits>

#include "native/base/cuda.hpp"
#include "native/kernels/context.hpp"
#include "native/kernels/layout.hpp"
#include "native/kernels/rows/parts.hpp"
#include "native/kernels/rows/width.hpp"

namespace glm::kernels::rows {

constexpr int32_t kWarpThreads = 32;
constexpr int32_t kSmallThreads = 512;
constexpr int32_t kMostChunksInParts = 2;
constexpr int64_t kMostRowsInParts = 2;

struct RowShape {
  int32_t num_chunks;
  int32_t num_threads;
  int32_t num_parts = 1;

  RowShape in_parts(int32_t parts) const {
    return {num_chunks, num_threads / parts, parts};
  }
};

inline bool has_parts(const Context& context, const RowShape& shape,
                      int64_t num_rows) {
  return num_rows <= kMostRowsInParts &&
         num_rows <= context.num_multiprocessors &&
         shape.num_chunks <= kMostChunksInParts &&
         shape.num_threads % (kPartsOfFewRows * kWarpThreads) == 0;
}

inline int32_t threads_for(int64_t width, int32_t num_chunks) {
  int64_t chunks = width > 0 ? ceil_divide(width, kChunkElements) : 1;
  return static_cast<int32_t>(
      round_up(ceil_divide(chunks, num_chunks), kWarpThreads));
}

inline RowShape shape_of(const char* where, int64_t width) {
  expect_width(where, width);
  for (int32_t num_chunks : {1, 2, 4}) {
    int32_t num_threads = threads_for(width, num_chunks);
    if (num_threads <= kMaxThreads) return {num_chunks, num_threads};
  }
  return {kMaxChunks, threads_for(width, kMaxChunks)};
}

inline RowShape small_shape_of(const char* where, int64_t width) {
  RowShape shape = shape_of(where, width);
  if (shape.num_chunks != 2) return shape;
  for (int32_t num_chunks : {3, 4}) {
    shape = {num_chunks, threads_for(width, num_chunks)};
    if (shape.num_threads <= kSmallThreads) return shape;
  }
  return shape;
}

inline bool are_aligned(int64_t width,
                        std::initializer_list<const void*> pointers) {
  uintptr_t bits = 0;
  for (const void* pointer : pointers)
    bits |= reinterpret_cast<uintptr_t>(pointer);
  return width % kChunkElements == 0 && bits % kChunkBytes == 0;
}

template <int32_t first, int32_t... others, typename Function>
void with_chunks(int32_t num_chunks, bool aligned, Function function) {
  if constexpr (sizeof...(others) > 0)
    if (num_chunks != first)
      return with_chunks<others...>(num_chunks, aligned, function);
  std::integral_constant<int32_t, first> chunks;
  if (aligned)
    function(chunks, std::true_type());
  else
    function(chunks, std::false_type());
}

template <typename Kernel>
LaunchShape grid_of(const Context& context, const char* where, int64_t num_rows,
                    const RowShape& shape, Kernel kernel) {
  int64_t num_blocks = context.num_multiprocessors;
  if (num_rows > num_blocks) {
    int blocks = 0;
    check(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, kernel,
                                                        shape.num_threads, 0),
          where);
    num_blocks *= blocks;
  }
  if (num_rows < num_blocks) num_blocks = num_rows;
  return {dim3(static_cast<uint32_t>(num_blocks * shape.num_parts)),
          dim3(static_cast<uint32_t>(shape.num_threads)), 0,
          static_cast<uint32_t>(shape.num_parts)};
}

template <int32_t... num_chunks, typename Given, typename KernelOf>
void launch_rows(const char* where, const Context& context, int64_t num_rows,
                 const RowShape& shape, bool aligned, const Given& given,
                 KernelOf kernel_of) {
  with_chunks<num_chunks...>(
      shape.num_chunks, aligned, [&](auto chunks, auto is_fast) {
        auto kernel = kernel_of(chunks, is_fast);
        launch(where, context.stream,
               grid_of(context, where, num_rows, shape, kernel), kernel, given);
      });
}

}
