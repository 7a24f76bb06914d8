#include <string>

#include "native/base/cuda.hpp"
#include "native/base/failure.hpp"
#include "native/kernels/sample/adjust.hpp"
#include "native/kernels/sample/draw.hpp"
#include "native/kernels/sample/logprobs.hpp"
#include "native/kernels/sample/sample.hpp"
#include "native/ptx/dependent_launch.hpp"

namespace glm::kernels {
namespace {

using namespace sampling;

constexpr char kWhere[] = "sample";
constexpr int64_t kMaxSharedBytes = 227 * 1024;

__device__ RowOutputs outputs_of(const glm_sample_args& args, int32_t row) {
  int64_t best = int64_t{row} * GLM_MAX_LOGPROBS;
  return {args.token_ids + row, args.is_finite + row,
          args.logprob == nullptr ? nullptr : args.logprob + row,
          args.top_ids == nullptr ? nullptr : args.top_ids + best,
          args.top_logprobs == nullptr ? nullptr : args.top_logprobs + best};
}

__device__ GivenRow given_of(const glm_sample_args& args, int32_t row) {
  const float* logits = args.logits + int64_t{row} * args.vocab_size;
  bool is_aligned = reinterpret_cast<uintptr_t>(logits) % sizeof(float4) == 0;
  return {logits, args.vocab_size, is_aligned};
}

__device__ Candidate greatest(ClusterRow& row, bool all_finite) {
  Candidate own = {0, 0};
  for_each_token(row.slice(), [&](int32_t token, float logit) {
    own.score = max(own.score, ranked(logit, token));
  });
  if (!all_finite) own.score = kNotFinite;
  return row.best_of(own);
}

__device__ void write_token(const RowOutputs& outputs,
                            const RowControls& controls, int32_t token,
                            bool all_finite) {
  if (threadIdx.x != 0) return;
  *outputs.token_id = token;
  *outputs.is_finite = all_finite ? 1 : 0;
  if (controls.counts != nullptr && token >= 0)
    atomicAdd(controls.counts + token, 1u);
}

__device__ void finish_row(ClusterRow& row, const glm_sample_args& args,
                           const RowControls& controls,
                           const RowOutputs& outputs, uint64_t largest) {
  float value = value_of(largest);
  int32_t token = token_of(largest);
  if (token >= 0 && controls.temperature != 0.0f)
    token = draw(row, controls, value, args.vocab_size);
  bool wants_logprobs = controls.num_logprobs >= 0 && largest != 0;
  double normaliser = 0.0;
  if (wants_logprobs) {
    normaliser = log_sum_exp(row, value, args.vocab_size);
    find_best(row, controls.num_logprobs);
    cluster_barrier();
  }
  if (row.is_leader()) {
    write_token(outputs, controls, token, true);
    if (wants_logprobs)
      write_logprobs(row, outputs, token, controls.num_logprobs, normaliser);
    else
      write_no_logprobs(outputs);
  }
  if (wants_logprobs) cluster_barrier();
}

__global__ void __launch_bounds__(kThreads, 2)
    sample_rows(glm_sample_args args) {
  extern __shared__ uint4 memory[];
  ptx::cluster_arrive();
  ptx::wait_for_predecessor();
  ptx::let_successor_start();
  int32_t index = static_cast<int32_t>(blockIdx.x) / kRowBlocks;
  ClusterRow row(*reinterpret_cast<RowShared*>(memory), args.vocab_size);
  RowControls controls = controls_of(args, index);
  RowOutputs outputs = outputs_of(args, index);
  bool all_finite =
      adjust_slice(args, given_of(args, index), controls, row.slice());
  ptx::cluster_wait();
  uint64_t largest = greatest(row, all_finite).score;
  if (largest != kNotFinite)
    return finish_row(row, args, controls, outputs, largest);
  if (!row.is_leader()) return;
  write_token(outputs, controls, -1, false);
  write_no_logprobs(outputs);
}

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
}

void expect_tables(const glm_sample_args& args) {
  expect_pointer(kWhere, "count_row", args.count_row);
  expect_pointer(kWhere, "mask_row", args.mask_row);
  expect_pointer(kWhere, "num_logprobs", args.num_logprobs);
  expect_pointer(kWhere, "bias_begin", args.bias_begin);
  if (args.num_biases > 0) {
    expect_pointer(kWhere, "bias_tokens", args.bias_tokens);
    expect_pointer(kWhere, "bias_values", args.bias_values);
  }
  if (args.num_masks > 0) expect_pointer(kWhere, "masks", args.masks);
  expect_pointer(kWhere, "token_ids", args.token_ids);
  expect_pointer(kWhere, "is_finite", args.is_finite);
}

void expect_shape(const glm_sample_args& args) {
  expect_range(kWhere, "num_rows", 0, INT32_MAX / kRowBlocks, args.num_rows);
  expect_range(kWhere, "vocab_size", 1, INT32_MAX, args.vocab_size);
  expect_range(kWhere, "num_count_rows", 0, INT32_MAX, args.num_count_rows);
  expect_range(kWhere, "num_masks", 0, INT32_MAX, args.num_masks);
  expect_range(kWhere, "num_biases", 0, INT32_MAX, args.num_biases);
  int64_t bytes = shared_bytes(args.vocab_size);
  if (bytes > kMaxSharedBytes)
    throw Failure(GLM_NOT_SUPPORTED,
                  "sample: bytes of a slice of vocab_size: expected at most " +
                      std::to_string(kMaxSharedBytes) + ", got " +
                      std::to_string(bytes));
}

}

void sample(const Context& context, const glm_sample_args& args) {
  expect_shape(args);
  if (args.num_rows == 0) return;
  expect_controls(args);
  expect_tables(args);
  LaunchShape shape;
  shape.grid = dim3(static_cast<uint32_t>(args.num_rows) * kRowBlocks);
  shape.block = dim3(kThreads);
  shape.shared_bytes = shared_bytes(args.vocab_size);
  shape.cluster = kRowBlocks;
  launch(kWhere, context.stream, shape, sample_rows, args);
}

int64_t sample_scratch_bytes(const glm_workspace_shape&) { return 0; }

}
