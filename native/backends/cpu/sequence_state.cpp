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

void expect_draft_rows(const char* where, int64_t num_drafts, int64_t most_rows,
                       int64_t num_table_rows, const int32_t* draft_rows,
                       const int32_t* state_row) {
  expect_each(where, "draft_rows", 0, most_rows - 1, draft_rows, num_drafts);
  if (num_drafts > 0) expect_pointer(where, "state_row", state_row);
  for (int64_t i = 0; i < num_drafts; ++i)
    expect_range(where, "state_row of a draft row", 0, num_table_rows - 1,
                 state_row[draft_rows[i]]);
}

void expect_drafts(const char* where, const glm_begin_drafts_args& args) {
  expect_draft_rows(where, args.num_drafts, args.num_sample_rows,
                    args.num_table_rows, args.draft_rows, args.state_row);
  expect_pointer(where, "logit_rows", args.logit_rows);
  expect_pointer(where, "states", args.states);
  expect_pointer(where, "rows", args.rows);
  expect_pointer(where, "table_row", args.table_row);
  expect_pointer(where, "context_length", args.context_length);
  expect_pointer(where, "position", args.position);
  for (int32_t draft = 0; draft < args.num_drafts; ++draft) {
    const int32_t first = args.draft_rows[draft];
    const int32_t accepted = args.states[args.state_row[first]].num_accepted;
    expect_range(where, "num_accepted", 0, args.num_sample_rows - 1 - first,
                 accepted);
    expect_range(where, "logit_rows of a draft row", 0, args.num_tokens - 1,
                 args.logit_rows[first + accepted]);
  }
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
  if (args.acceptance_rate >= 0) expect_pointer(where, "seed", args.seed);
  for (int32_t row = 0; row < args.num_rows; ++row) accept_sequence(args, row);
}

void begin_drafts(glm_device&, const glm_begin_drafts_args& args) {
  const char* where = "begin_drafts";
  const int64_t rows = args.num_tokens;
  expect_range(where, "num_tokens", 0, INT32_MAX, args.num_tokens);
  expect_range(where, "num_sample_rows", 0, INT32_MAX, args.num_sample_rows);
  expect_range(where, "num_drafts", 0, args.num_sample_rows, args.num_drafts);
  expect_each(where, "next_ids", -args.num_sample_rows, INT32_MAX,
              args.next_ids, rows);
  if (args.num_sample_rows > 0)
    expect_pointer(where, "sampled_ids", args.sampled_ids);
  if (rows > 0) expect_pointer(where, "token_ids", args.token_ids);
  expect_each(where, "positions", 0, INT32_MAX - 1, args.positions, rows);
  if (args.num_drafts > 0) expect_drafts(where, args);
  for (int32_t row = 0; row < args.num_tokens; ++row) follow_row(args, row);
  for (int32_t draft = 0; draft < args.num_drafts; ++draft)
    begin_draft(args, draft);
}

void keep_drafts(glm_device&, const glm_keep_drafts_args& args) {
  const char* where = "keep_drafts";
  expect_range(where, "num_drafts", 0, INT32_MAX, args.num_drafts);
  if (args.num_drafts == 0) return;
  expect_draft_rows(where, args.num_drafts, INT32_MAX, args.num_table_rows,
                    args.draft_rows, args.state_row);
  expect_pointer(where, "draft_ids", args.draft_ids);
  expect_pointer(where, "states", args.states);
  for (int32_t draft = 0; draft < args.num_drafts; ++draft)
    keep_draft(args, draft);
}

}
