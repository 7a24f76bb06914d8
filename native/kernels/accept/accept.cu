#include "native/base/cuda.hpp"
#include "native/base/failure.hpp"
#include "native/base/sequence_state.hpp"
#include "native/kernels/accept/accept.hpp"
#include "native/kernels/row_threads.hpp"
#include "native/ptx/dependent_launch.hpp"

namespace glm::kernels {
namespace {

constexpr char kWhere[] = "accept";

__global__ void __launch_bounds__(kRowThreads)
    accept_rows(glm_accept_args args) {
  ptx::wait_for_predecessor();
  ptx::let_successor_start();
  const int32_t row = own_row();
  if (row < args.num_rows) accept_sequence(args, row);
}

void expect_arrays(const glm_accept_args& args) {
  expect_pointer(kWhere, "row_offset", args.row_offset);
  expect_pointer(kWhere, "input_ids", args.input_ids);
  expect_pointer(kWhere, "sampled_ids", args.sampled_ids);
  if (args.acceptance_rate >= 0) expect_pointer(kWhere, "seed", args.seed);
  expect_pointer(kWhere, "position", args.position);
  expect_pointer(kWhere, "state_row", args.state_row);
  expect_pointer(kWhere, "count_row", args.count_row);
  expect_pointer(kWhere, "counts", args.counts);
  expect_pointer(kWhere, "states", args.states);
}

}

void accept(const Context& context, const glm_accept_args& args) {
  expect_range(kWhere, "num_rows", 0, INT32_MAX, args.num_rows);
  expect_range(kWhere, "vocab_size", 1, INT32_MAX, args.vocab_size);
  expect_range(kWhere, "num_table_rows", 1, INT32_MAX, args.num_table_rows);
  if (args.num_rows == 0) return;
  expect_arrays(args);
  launch(kWhere, context.stream, a_thread_each(args.num_rows), accept_rows,
         args);
}

}
