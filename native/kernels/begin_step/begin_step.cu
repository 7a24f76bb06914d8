#include "native/base/cuda.hpp"
#include "native/base/failure.hpp"
#include "native/base/sequence_state.hpp"
#include "native/kernels/begin_step/begin_step.hpp"
#include "native/kernels/row_threads.hpp"
#include "native/ptx/dependent_launch.hpp"

namespace glm::kernels {
namespace {

constexpr char kWhere[] = "begin_step";

__global__ void __launch_bounds__(kRowThreads)
    begin_rows(glm_begin_step_args args) {
  ptx::wait_for_predecessor();
  ptx::let_successor_start();
  const int32_t row = own_row();
  if (row < args.num_rows) begin_row(args, row);
}

void expect_arrays(const glm_begin_step_args& args) {
  expect_pointer(kWhere, "page_table", args.page_table);
  expect_pointer(kWhere, "source_rows", args.source_rows);
  expect_pointer(kWhere, "table_row", args.table_row);
  expect_pointer(kWhere, "row_offset", args.row_offset);
  expect_pointer(kWhere, "position_limit", args.position_limit);
  expect_pointer(kWhere, "states", args.states);
  expect_pointer(kWhere, "token_ids", args.token_ids);
  expect_pointer(kWhere, "positions", args.positions);
  expect_pointer(kWhere, "slots", args.slots);
  expect_pointer(kWhere, "context_length", args.context_length);
  expect_pointer(kWhere, "position", args.position);
}

}

void begin_step(const Context& context, const glm_begin_step_args& args) {
  expect_range(kWhere, "num_rows", 0, INT32_MAX, args.num_rows);
  if (args.num_rows == 0) return;
  expect_range(kWhere, "page_size", 1, INT32_MAX, args.page_size);
  expect_range(kWhere, "num_table_rows", 1, INT32_MAX, args.num_table_rows);
  expect_arrays(args);
  launch(kWhere, context.stream, a_thread_each(args.num_rows), begin_rows,
         args);
}

}
