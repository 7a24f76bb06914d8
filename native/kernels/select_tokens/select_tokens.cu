#include "native/base/cuda.hpp"
#include "native/kernels/layout.hpp"
#include "native/kernels/select_tokens/select_tokens.hpp"
#include "native/ptx/dependent_launch.hpp"

namespace glm::kernels {
namespace {

constexpr int32_t kThreads = 256;

__global__ void __launch_bounds__(kThreads)
    select_tokens_kernel(glm_select_tokens_args args) {
  ptx::wait_for_predecessor();
  ptx::let_successor_start();
  int32_t token = static_cast<int32_t>(blockIdx.x) * kThreads +
                  static_cast<int32_t>(threadIdx.x);
  if (token >= args.num_tokens) return;
  int32_t row = args.source_rows[token];
  if (row >= 0) args.token_ids[token] = max(0, args.sampled_ids[row]);
}

}

void select_tokens(const Context& context, const glm_select_tokens_args& args) {
  const char* where = "select_tokens";
  expect_range(where, "num_tokens", 0, INT32_MAX, args.num_tokens);
  if (args.num_tokens == 0) return;
  expect_pointer(where, "source_rows", args.source_rows);
  expect_pointer(where, "sampled_ids", args.sampled_ids);
  expect_pointer(where, "token_ids", args.token_ids);
  uint32_t blocks =
      static_cast<uint32_t>(ceil_divide(args.num_tokens, kThreads));
  launch(where, context.stream, {dim3(blocks), dim3(kThreads)},
         select_tokens_kernel, args);
}

}
