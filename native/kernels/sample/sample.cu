#include <string>

#include "native/base/cuda.hpp"
#include "native/base/failure.hpp"
#include "native/kernels/sample/kernels.hpp"
#include "native/kernels/sample/sample.hpp"
#include "native/kernels/shapes/shapes.hpp"

namespace glm::kernels {
namespace {

using namespace sampling;

constexpr char kWhere[] = "sample";
constexpr int32_t kMaxRowsOfOneLaunch = 16;

void expect_controls(const glm_sample_args& args) {
  expect_pointer(kWhere, "logits", args.logits);
  expect_pointer(kWhere, "temperature", args.temperature);
  expect_pointer(kWhere, "top_p", args.top_p);
  expect_pointer(kWhere, "min_p", args.min_p);
  expect_pointer(kWhere, "top_k", args.top_k);
  expect_pointer(kWhere, "repetition_penalty", args.repetition_penalty);
  expect_pointer(kWhere, "frequency_penalty", args.frequency_penalty);
  expect_pointer(kWhere, "presence_penalty", args.presence_penalty);
  expect_pointer(kWhere, "seed", args.seed);
  expect_pointer(kWhere, "position", args.position);
  expect_pointer(kWhere, "row_offset", args.row_offset);
  expect_pointer(kWhere, "input_ids", args.input_ids);
}

void expect_tables(const glm_sample_args& args) {
  expect_pointer(kWhere, "count_row", args.count_row);
  expect_pointer(kWhere, "mask_row", args.mask_row);
  expect_pointer(kWhere, "num_logprobs", args.num_logprobs);
  expect_pointer(kWhere, "forced_token", args.forced_token);
  expect_pointer(kWhere, "bias_begin", args.bias_begin);
  expect_pointer(kWhere, "bias_end", args.bias_end);
  if (args.num_biases > 0) {
    expect_pointer(kWhere, "bias_tokens", args.bias_tokens);
    expect_pointer(kWhere, "bias_values", args.bias_values);
  }
  if (args.num_masks > 0) expect_pointer(kWhere, "masks", args.masks);
  expect_pointer(kWhere, "token_ids", args.token_ids);
  expect_pointer(kWhere, "is_finite", args.is_finite);
}

}

namespace {

int32_t greedy_blocks(const Context& context, int32_t num_rows) {
  int64_t resident = int64_t{context.num_multiprocessors} * kGreedyResident;
  for (int32_t blocks = kRowBlocks; blocks > 1; blocks /= 2)
    if (int64_t{num_rows} * blocks <= resident) return blocks;
  return 1;
}

void launch_greedy(const Context& context, const glm_sample_args& args) {
  int32_t blocks = greedy_blocks(context, args.num_rows);
  LaunchShape shape;
  shape.grid = dim3(static_cast<uint32_t>(args.num_rows * blocks));
  shape.block = dim3(kThreads);
  shape.cluster = static_cast<uint32_t>(blocks);
  launch(kWhere, context.stream, shape, greedy_tokens, args, blocks);
}

void launch_drawn(const Context& context, const glm_sample_args& args,
                  bool takes_greedy) {
  LaunchShape shape;
  shape.grid = dim3(static_cast<uint32_t>(args.num_rows * kRowBlocks));
  shape.block = dim3(kThreads);
  shape.shared_bytes = shared_bytes(args.vocab_size);
  shape.cluster = kRowBlocks;
  launch(kWhere, context.stream, shape, drawn_tokens, args, takes_greedy);
}

}

void sample(const Context& context, const glm_sample_args& args) {
  expect_sample_shapes(args);
  if (args.num_rows == 0) return;
  expect_controls(args);
  expect_tables(args);
  bool is_one_launch = args.num_rows <= kMaxRowsOfOneLaunch;
  if (!is_one_launch) launch_greedy(context, args);
  launch_drawn(context, args, is_one_launch);
}

}
