#include "native/base/sequence_state.hpp"

#include "device.hpp"
#include "native/base/failure.hpp"
#include "operations.hpp"

namespace glm::cpu {
namespace {

void expect_row(const char* where, const glm_begin_step_args& args,
                int32_t row) {
  const glm_sequence_state& state = args.states[args.table_row[row]];
  expect_range(where, "length", 1, INT32_MAX, state.length);
  if (args.row_offset[row] == 0) return;
  expect_pointer(where, "continuation", args.continuation);
  expect_range(where, "num_accepted", 0, args.continuation_stride - 1,
               state.num_accepted);
}

}

void begin_step(glm_device&, const glm_begin_step_args& args) {
  const char* where = "begin_step";
  const int64_t rows = args.num_rows;
  expect_range(where, "num_rows", 0, INT32_MAX, args.num_rows);
  if (rows == 0) return;
  expect_range(where, "page_size", 1, INT32_MAX, args.page_size);
  expect_pointer(where, "page_table", args.page_table);
  expect_pointer(where, "source_rows", args.source_rows);
  expect_each(where, "table_row", 0, args.num_table_rows - 1, args.table_row,
              rows);
  expect_each(where, "row_offset", 0, INT32_MAX, args.row_offset, rows);
  expect_each(where, "position_limit", 1,
              int64_t{args.page_table_stride} * args.page_size,
              args.position_limit, rows);
  expect_pointer(where, "states", args.states);
  expect_pointer(where, "token_ids", args.token_ids);
  expect_pointer(where, "positions", args.positions);
  expect_pointer(where, "slots", args.slots);
  expect_pointer(where, "context_length", args.context_length);
  expect_pointer(where, "position", args.position);
  for (int32_t row = 0; row < args.num_rows; ++row) {
    if (args.source_rows[row] >= 0) expect_row(where, args, row);
    begin_row(args, row);
  }
}

void accept(glm_device&, const glm_accept_args& args) {
  const char* where = "accept";
  const int64_t rows = args.num_rows;
  expect_range(where, "num_rows", 0, INT32_MAX, args.num_rows);
  expect_range(where, "vocab_size", 1, INT32_MAX, args.vocab_size);
  expect_range(where, "num_table_rows", 1, INT32_MAX, args.num_table_rows);
  if (rows == 0) return;
  expect_each(where, "row_offset", 0, INT32_MAX, args.row_offset, rows);
  expect_each(where, "sampled_ids", -1, args.vocab_size - 1, args.sampled_ids,
              rows);
  expect_each(where, "position", 0, INT32_MAX, args.position, rows);
  expect_each(where, "state_row", -1, args.num_table_rows - 1, args.state_row,
              rows);
  expect_each(where, "count_row", -1, args.num_table_rows - 1, args.count_row,
              rows);
  expect_pointer(where, "input_ids", args.input_ids);
  expect_pointer(where, "counts", args.counts);
  expect_pointer(where, "states", args.states);
  if (args.acceptance_rate > 0) expect_pointer(where, "seed", args.seed);
  for (int32_t row = 0; row < args.num_rows; ++row) accept_sequence(args, row);
}

}
