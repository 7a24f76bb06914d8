#include "native/base/cuda.hpp"
#include "native/kernels/attention/row_list.hpp"
#include "native/kernels/layout.hpp"
#include "native/ptx/dependent_launch.hpp"

namespace glm::kernels {
namespace {

constexpr int32_t kThreads = 128;

__device__ int32_t segment_of(const glm_segments& segments, int32_t row) {
  int32_t low = segments.num_decode_segments;
  int32_t high = segments.num_segments;
  while (high - low > 1) {
    const int32_t middle = (low + high) / 2;
    if (segments.query_begin[middle] <= row)
      low = middle;
    else
      high = middle;
  }
  return low;
}

__global__ __launch_bounds__(kThreads) void list_rows_kernel(
    int32_t num_tokens, glm_segments segments, RowList list) {
  ptx::wait_for_predecessor();
  ptx::let_successor_start();
  const int32_t index =
      static_cast<int32_t>(blockIdx.x * kThreads + threadIdx.x);
  const int32_t row = segments.num_decode_segments + index;
  if (row >= num_tokens) return;
  const int32_t segment = segment_of(segments, row);
  const int32_t end = segments.query_begin[segment + 1];
  list.context_length[index] =
      row < end ? segments.context_length[segment] - (end - 1 - row) : 0;
  list.table_row[index] = segments.table_row[segment];
}

}

void list_prefill_rows(const Context& context, const glm_attention_args& args,
                       const RowList& list) {
  const int32_t count = args.num_tokens - args.segments.num_decode_segments;
  LaunchShape shape;
  shape.grid = dim3(static_cast<uint32_t>(ceil_divide(count, kThreads)));
  shape.block = dim3(kThreads);
  launch("attention: prefill row list", context.stream, shape, list_rows_kernel,
         args.num_tokens, args.segments, list);
}

}
