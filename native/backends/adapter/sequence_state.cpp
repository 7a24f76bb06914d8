#include "native/base/sequence_state.hpp"

#include "device.hpp"
#include "host_view.hpp"
#include "native/base/failure.hpp"
#include "operations.hpp"

namespace glm::adapter {
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

void begin_step(glm_device&, const glm_begin_step_args& given) {
  const char* where = "begin_step";
  const int64_t rows = given.num_rows;
  expect_range(where, "num_rows", 0, INT32_MAX, given.num_rows);
  if (rows == 0) return;
  expect_range(where, "page_size", 1, INT32_MAX, given.page_size);
  expect_range(where, "num_table_rows", 0, INT32_MAX, given.num_table_rows);
  expect_range(where, "page_table_stride", 0, INT32_MAX,
               given.page_table_stride);
  expect_pointer(where, "page_table", given.page_table);
  expect_pointer(where, "source_rows", given.source_rows);
  expect_pointer(where, "states", given.states);
  expect_pointer(where, "token_ids", given.token_ids);
  expect_pointer(where, "positions", given.positions);
  expect_pointer(where, "slots", given.slots);
  expect_pointer(where, "context_length", given.context_length);
  expect_pointer(where, "position", given.position);
  const int64_t num_continued = rows * given.continuation_stride;
  HostView page_table(where, given.page_table,
                      int64_t{given.num_table_rows} * given.page_table_stride);
  HostView source_rows(where, given.source_rows, rows);
  HostView table_row(where, given.table_row, rows);
  HostView row_offset(where, given.row_offset, rows);
  HostView position_limit(where, given.position_limit, rows);
  HostView states(where, given.states, given.num_table_rows);
  HostView continuation(where, given.continuation, num_continued);
  HostView token_ids(where, given.token_ids, rows);
  HostView positions(where, given.positions, rows);
  HostView slots(where, given.slots, rows);
  HostView context_length(where, given.context_length, rows);
  HostView position(where, given.position, rows);
  const glm_begin_step_args args = {
      given.num_rows,          given.num_table_rows, given.page_size,
      given.page_table_stride, page_table.data(),    source_rows.data(),
      table_row.data(),        row_offset.data(),    position_limit.data(),
      states.data(),           continuation.data(),  given.continuation_stride,
      token_ids.data(),        positions.data(),     slots.data(),
      context_length.data(),   position.data(),
  };
  expect_each(where, "table_row", 0, args.num_table_rows - 1, args.table_row,
              rows);
  expect_each(where, "row_offset", 0, INT32_MAX, args.row_offset, rows);
  expect_each(where, "position_limit", 1,
              int64_t{args.page_table_stride} * args.page_size,
              args.position_limit, rows);
  for (int32_t row = 0; row < args.num_rows; ++row) {
    if (args.source_rows[row] >= 0) expect_row(where, args, row);
    begin_row(args, row);
  }
  token_ids.write();
  positions.write();
  slots.write();
  context_length.write();
  position.write();
}

void accept(glm_device&, const glm_accept_args& given) {
  const char* where = "accept";
  const int64_t rows = given.num_rows;
  expect_range(where, "num_rows", 0, INT32_MAX, given.num_rows);
  expect_range(where, "vocab_size", 1, INT32_MAX, given.vocab_size);
  expect_range(where, "num_table_rows", 1, INT32_MAX, given.num_table_rows);
  if (rows == 0) return;
  expect_pointer(where, "input_ids", given.input_ids);
  expect_pointer(where, "counts", given.counts);
  expect_pointer(where, "states", given.states);
  if (given.acceptance_rate >= 0) expect_pointer(where, "seed", given.seed);
  HostView row_offset(where, given.row_offset, rows);
  HostView input_ids(where, given.input_ids, rows);
  HostView sampled_ids(where, given.sampled_ids, rows);
  HostView seed(where, given.seed, rows);
  HostView position(where, given.position, rows);
  HostView state_row(where, given.state_row, rows);
  HostView count_row(where, given.count_row, rows);
  HostView states(where, given.states, given.num_table_rows);
  const glm_accept_args args = {
      given.num_rows,        given.vocab_size,  given.num_table_rows,
      given.acceptance_rate, row_offset.data(), input_ids.data(),
      sampled_ids.data(),    seed.data(),       position.data(),
      state_row.data(),      count_row.data(),  given.counts,
      states.data(),
  };
  expect_each(where, "row_offset", 0, INT32_MAX, args.row_offset, rows);
  expect_each(where, "sampled_ids", -1, args.vocab_size - 1, args.sampled_ids,
              rows);
  expect_each(where, "position", 0, INT32_MAX, args.position, rows);
  expect_each(where, "state_row", -1, args.num_table_rows - 1, args.state_row,
              rows);
  expect_each(where, "count_row", -1, args.num_table_rows - 1, args.count_row,
              rows);
  const auto add_one = [where](uint32_t* memory) {
    HostView count(where, memory, 1);
    ++count[0];
    count.write();
  };
  for (int32_t row = 0; row < args.num_rows; ++row)
    accept_sequence(args, row, add_one);
  sampled_ids.write();
  states.write();
}

void begin_drafts(glm_device&, const glm_begin_drafts_args& given) {
  const char* where = "begin_drafts";
  const int64_t tokens = given.num_tokens;
  expect_range(where, "num_tokens", 0, INT32_MAX, given.num_tokens);
  expect_range(where, "num_sample_rows", 0, INT32_MAX, given.num_sample_rows);
  expect_range(where, "num_drafts", 0, given.num_sample_rows, given.num_drafts);
  expect_range(where, "num_table_rows", 0, INT32_MAX, given.num_table_rows);
  if (given.num_sample_rows > 0)
    expect_pointer(where, "sampled_ids", given.sampled_ids);
  if (tokens > 0) expect_pointer(where, "token_ids", given.token_ids);
  HostView next_ids(where, given.next_ids, tokens);
  HostView sampled_ids(where, given.sampled_ids, given.num_sample_rows);
  HostView positions(where, given.positions, tokens);
  HostView logit_rows(where, given.logit_rows, given.num_sample_rows);
  HostView state_row(where, given.state_row, given.num_sample_rows);
  HostView draft_rows(where, given.draft_rows, given.num_drafts);
  HostView states(where, given.states, given.num_table_rows);
  HostView token_ids(where, given.token_ids, tokens);
  HostView rows(where, given.rows, given.num_drafts);
  HostView table_row(where, given.table_row, given.num_drafts);
  HostView context_length(where, given.context_length, given.num_drafts);
  HostView position(where, given.position, given.num_drafts);
  const glm_begin_drafts_args args = {
      given.num_tokens,     given.num_sample_rows, given.num_drafts,
      given.num_table_rows, next_ids.data(),       sampled_ids.data(),
      positions.data(),     logit_rows.data(),     state_row.data(),
      draft_rows.data(),    states.data(),         token_ids.data(),
      rows.data(),          table_row.data(),      context_length.data(),
      position.data(),
  };
  expect_each(where, "next_ids", -args.num_sample_rows, INT32_MAX,
              args.next_ids, tokens);
  expect_each(where, "positions", 0, INT32_MAX - 1, args.positions, tokens);
  if (args.num_drafts > 0) expect_drafts(where, args);
  for (int32_t row = 0; row < args.num_tokens; ++row) follow_row(args, row);
  for (int32_t draft = 0; draft < args.num_drafts; ++draft)
    begin_draft(args, draft);
  token_ids.write();
  rows.write();
  table_row.write();
  context_length.write();
  position.write();
}

void keep_drafts(glm_device&, const glm_keep_drafts_args& given) {
  const char* where = "keep_drafts";
  expect_range(where, "num_drafts", 0, INT32_MAX, given.num_drafts);
  expect_range(where, "num_table_rows", 0, INT32_MAX, given.num_table_rows);
  if (given.num_drafts == 0) return;
  expect_pointer(where, "draft_rows", given.draft_rows);
  expect_pointer(where, "draft_ids", given.draft_ids);
  expect_pointer(where, "states", given.states);
  HostView draft_rows(where, given.draft_rows, given.num_drafts);
  HostView state_row(where, given.state_row,
                     rows_read_by(draft_rows.data(), given.num_drafts));
  HostView draft_ids(where, given.draft_ids, given.num_drafts);
  HostView states(where, given.states, given.num_table_rows);
  const glm_keep_drafts_args args = {
      given.num_drafts,  given.num_table_rows, state_row.data(),
      draft_rows.data(), draft_ids.data(),     states.data(),
  };
  expect_draft_rows(where, args.num_drafts, INT32_MAX, args.num_table_rows,
                    args.draft_rows, args.state_row);
  for (int32_t draft = 0; draft < args.num_drafts; ++draft)
    keep_draft(args, draft);
  states.write();
}

}
