#include <algorithm>

#include "native/base/cuda.hpp"
#include "native/base/failure.hpp"
#include "native/base/sequence_state.hpp"
#include "native/kernels/drafts/drafts.hpp"
#include "native/kernels/row_threads.hpp"
#include "native/ptx/dependent_launch.hpp"

namespace glm::kernels {
namespace {

constexpr char kBegin[] = "begin_drafts";
constexpr char kKeep[] = "keep_drafts";

__global__ void __launch_bounds__(kRowThreads)
    begin_draft_rows(glm_begin_drafts_args args) {
  ptx::wait_for_predecessor();
  ptx::let_successor_start();
  const int32_t index = own_row();
  if (index < args.num_tokens) follow_row(args, index);
  if (index < args.num_drafts) begin_draft(args, index);
}

__global__ void __launch_bounds__(kRowThreads)
    keep_draft_ids(glm_keep_drafts_args args) {
  ptx::wait_for_predecessor();
  ptx::let_successor_start();
  const int32_t index = own_row();
  if (index < args.num_drafts) keep_draft(args, index);
}

void expect_tokens(const glm_begin_drafts_args& args) {
  if (args.num_tokens == 0) return;
  expect_pointer(kBegin, "next_ids", args.next_ids);
  expect_pointer(kBegin, "positions", args.positions);
  expect_pointer(kBegin, "token_ids", args.token_ids);
}

void expect_drafts(const glm_begin_drafts_args& args) {
  if (args.num_drafts == 0) return;
  expect_pointer(kBegin, "draft_rows", args.draft_rows);
  expect_pointer(kBegin, "state_row", args.state_row);
  expect_pointer(kBegin, "logit_rows", args.logit_rows);
  expect_pointer(kBegin, "states", args.states);
  expect_pointer(kBegin, "rows", args.rows);
  expect_pointer(kBegin, "table_row", args.table_row);
  expect_pointer(kBegin, "context_length", args.context_length);
  expect_pointer(kBegin, "position", args.position);
}

}

void begin_drafts(const Context& context, const glm_begin_drafts_args& args) {
  expect_range(kBegin, "num_tokens", 0, INT32_MAX, args.num_tokens);
  expect_range(kBegin, "num_sample_rows", 0, INT32_MAX, args.num_sample_rows);
  expect_range(kBegin, "num_drafts", 0, args.num_sample_rows, args.num_drafts);
  if (args.num_sample_rows > 0)
    expect_pointer(kBegin, "sampled_ids", args.sampled_ids);
  expect_tokens(args);
  expect_drafts(args);
  const int32_t count = std::max(args.num_tokens, args.num_drafts);
  if (count == 0) return;
  launch(kBegin, context.stream, a_thread_each(count), begin_draft_rows, args);
}

void keep_drafts(const Context& context, const glm_keep_drafts_args& args) {
  expect_range(kKeep, "num_drafts", 0, INT32_MAX, args.num_drafts);
  if (args.num_drafts == 0) return;
  expect_pointer(kKeep, "draft_rows", args.draft_rows);
  expect_pointer(kKeep, "state_row", args.state_row);
  expect_pointer(kKeep, "draft_ids", args.draft_ids);
  expect_pointer(kKeep, "states", args.states);
  launch(kKeep, context.stream, a_thread_each(args.num_drafts), keep_draft_ids,
         args);
}

}
