#include "native/base/cuda.hpp"
#include "native/kernels/layout.hpp"
#include "native/kernels/logits/gather.hpp"
#include "native/ptx/dependent_launch.hpp"

namespace glm::kernels {

namespace {

constexpr int32_t kThreads = 256;

template <typename Word>
__device__ void copy_row(const GatherArgs& args) {
  const int32_t row = args.row_begin + static_cast<int32_t>(blockIdx.x);
  const int64_t source_row =
      args.row_index == nullptr ? row : args.row_index[row];
  const Word* source =
      reinterpret_cast<const Word*>(args.input + source_row * args.row_bytes);
  Word* target = reinterpret_cast<Word*>(
      args.output + int64_t{blockIdx.x} * args.output_row_bytes);
  int32_t count = args.row_bytes / static_cast<int32_t>(sizeof(Word));
  int32_t padded = args.output_row_bytes / static_cast<int32_t>(sizeof(Word));
  for (int32_t i = static_cast<int32_t>(threadIdx.x); i < padded;
       i += kThreads) {
    target[i] = i < count ? source[i] : Word{};
  }
}

__global__ void gather(const __grid_constant__ GatherArgs args) {
  ptx::wait_for_predecessor();
  ptx::let_successor_start();
  if (args.row_bytes == args.output_row_bytes &&
      reinterpret_cast<uint64_t>(args.input) % sizeof(uint4) == 0) {
    copy_row<uint4>(args);
  } else {
    copy_row<uint16_t>(args);
  }
}

}

GatherArgs gather_args(const glm_logits_args& args, int32_t row_begin,
                       int32_t num_rows, int64_t output_row_bytes,
                       void* output) {
  return {static_cast<const uint8_t*>(args.input),
          args.row_index,
          row_begin,
          num_rows,
          args.head->columns * dtype_bytes(GLM_DTYPE_BF16),
          static_cast<uint8_t*>(output),
          static_cast<int32_t>(output_row_bytes)};
}

void gather_rows(const Context& context, const GatherArgs& args) {
  LaunchShape shape{dim3(static_cast<uint32_t>(args.num_rows)), dim3(kThreads)};
  launch("logits", context.stream, shape, gather, args);
}

}
