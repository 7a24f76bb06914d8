#include "native/base/cuda.hpp"
#include "native/base/failure.hpp"
#include "native/kernels/count_tokens/count_tokens.hpp"
#include "native/kernels/layout.hpp"
#include "native/ptx/dependent_launch.hpp"

namespace glm::kernels {
namespace {

constexpr char kWhere[] = "count_tokens";
constexpr int32_t kThreads = 256;
constexpr int32_t kMaxBlocks = 1024;

__global__ void clear_row(uint32_t* row, int32_t vocab_size) {
  ptx::wait_for_predecessor();
  ptx::let_successor_start();
  for (int64_t i = blockIdx.x * kThreads + threadIdx.x; i < vocab_size;
       i += gridDim.x * kThreads)
    row[i] = 0;
}

__global__ void count_row(uint32_t* row, int32_t vocab_size,
                          const int32_t* token_ids, int32_t num_tokens,
                          bool from_prompt) {
  ptx::wait_for_predecessor();
  ptx::let_successor_start();
  for (int64_t i = blockIdx.x * kThreads + threadIdx.x; i < num_tokens;
       i += gridDim.x * kThreads) {
    int32_t token = token_ids[i];
    if (token < 0 || token >= vocab_size) continue;
    if (from_prompt)
      atomicOr(row + token, GLM_TOKEN_IN_PROMPT);
    else
      atomicAdd(row + token, 1u);
  }
}

LaunchShape shape_of(int64_t count) {
  int64_t blocks = ceil_divide(count, kThreads);
  LaunchShape shape;
  shape.grid =
      dim3(static_cast<uint32_t>(blocks < kMaxBlocks ? blocks : kMaxBlocks));
  shape.block = dim3(kThreads);
  return shape;
}

}

void count_tokens(const Context& context, const glm_count_tokens_args& args) {
  expect_range(kWhere, "vocab_size", 1, INT32_MAX, args.vocab_size);
  expect_range(kWhere, "count_row", 0, INT32_MAX, args.count_row);
  expect_range(kWhere, "num_tokens", 0, INT32_MAX, args.num_tokens);
  expect_pointer(kWhere, "counts", args.counts);
  if (args.num_tokens > 0) expect_pointer(kWhere, "token_ids", args.token_ids);
  uint32_t* row = args.counts + int64_t{args.count_row} * args.vocab_size;
  if (args.reset != 0)
    launch(kWhere, context.stream, shape_of(args.vocab_size), clear_row, row,
           args.vocab_size);
  if (args.num_tokens == 0) return;
  launch(kWhere, context.stream, shape_of(args.num_tokens), count_row, row,
         args.vocab_size, args.token_ids, args.num_tokens,
         args.from_prompt != 0);
}

}
