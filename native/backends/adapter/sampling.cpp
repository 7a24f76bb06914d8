#include <algorithm>
#include <string>

#include "arrays.hpp"
#include "device.hpp"
#include "host_view.hpp"
#include "operations.hpp"

namespace glm::adapter {
namespace {

constexpr char kSample[] = "sample";

void expect_controls(const glm_sample_args& args) {
  expect_pointer(kSample, "logits", args.logits);
  expect_pointer(kSample, "temperature", args.temperature);
  expect_pointer(kSample, "top_p", args.top_p);
  expect_pointer(kSample, "min_p", args.min_p);
  expect_pointer(kSample, "top_k", args.top_k);
  expect_pointer(kSample, "repetition_penalty", args.repetition_penalty);
  expect_pointer(kSample, "frequency_penalty", args.frequency_penalty);
  expect_pointer(kSample, "presence_penalty", args.presence_penalty);
  expect_pointer(kSample, "seed", args.seed);
  expect_pointer(kSample, "position", args.position);
  expect_pointer(kSample, "token_ids", args.token_ids);
  expect_pointer(kSample, "is_finite", args.is_finite);
}

bool wants_logprobs(const glm_sample_args& args) {
  HostView<const int32_t> wanted(kSample, args.num_logprobs, args.num_rows);
  for (int32_t r = 0; r < args.num_rows; ++r)
    if (wanted[r] >= 0) return true;
  return false;
}

int32_t num_earlier_ids(const glm_sample_args& args) {
  HostView<const int32_t> offset(kSample, args.row_offset, args.num_rows);
  int32_t most = 0;
  for (int32_t r = 0; r < args.num_rows; ++r)
    most = std::max(most, offset[r] - 1 - r);
  return most;
}

void expect_drafts(const glm_sample_args& args) {
  expect_indices(kSample, "row_offset", 0, INT32_MAX, args.row_offset,
                 args.num_rows);
  expect_pointer(kSample, "input_ids", args.input_ids);
  if (!platform::kSharesMemory) return;
  for (int32_t r = 0; r < args.num_rows; ++r)
    expect_each(kSample, "input_ids", 0, args.vocab_size - 1,
                args.input_ids + r + 1 - args.row_offset[r],
                args.row_offset[r]);
}

void expect_rows(const glm_sample_args& args) {
  const int64_t rows = args.num_rows;
  expect_indices(kSample, "count_row", -1, args.num_count_rows - 1,
                 args.count_row, rows);
  expect_indices(kSample, "mask_row", -1, args.num_masks - 1, args.mask_row,
                 rows);
  expect_indices(kSample, "num_logprobs", -1, GLM_MAX_LOGPROBS,
                 args.num_logprobs, rows);
  expect_indices(kSample, "forced_token", -1, args.vocab_size - 1,
                 args.forced_token, rows);
  expect_indices(kSample, "bias_begin", 0, args.num_biases, args.bias_begin,
                 rows);
  expect_pointer(kSample, "bias_end", args.bias_end);
  expect_indices(kSample, "bias_tokens", 0, args.vocab_size - 1,
                 args.bias_tokens, args.num_biases);
  if (!platform::kSharesMemory) return;
  for (int32_t r = 0; r < args.num_rows; ++r)
    expect_range(kSample, "bias_end", args.bias_begin[r], args.num_biases,
                 args.bias_end[r]);
  for (int32_t r = 0; r < args.num_rows; ++r)
    if (args.count_row[r] >= 0) expect_pointer(kSample, "counts", args.counts);
}

void expect_tables(const glm_sample_args& args, bool with_logprobs) {
  if (args.num_biases > 0)
    expect_pointer(kSample, "bias_values", args.bias_values);
  if (args.num_masks > 0) expect_pointer(kSample, "masks", args.masks);
  if (!with_logprobs) return;
  expect_pointer(kSample, "logprob", args.logprob);
  expect_pointer(kSample, "top_ids", args.top_ids);
  expect_pointer(kSample, "top_logprobs", args.top_logprobs);
}

struct SampleResult {
  explicit SampleResult(futhark_context* context)
      : token_ids(context),
        is_finite(context),
        logprob(context),
        top_ids(context),
        top_logprobs(context) {}

  void copy_to(const glm_sample_args& args, int64_t num_best) const {
    const int64_t rows = args.num_rows;
    token_ids.copy_to(kSample, args.token_ids, rows);
    is_finite.copy_to(kSample, args.is_finite, rows);
    if (num_best == 0) return;
    logprob.copy_to(kSample, args.logprob, rows);
    top_ids.copy_to(kSample, args.top_ids, rows * num_best);
    top_logprobs.copy_to(kSample, args.top_logprobs, rows * num_best);
  }

  Array<int32_t, 1> token_ids, is_finite;
  Array<float, 1> logprob;
  Array<int32_t, 2> top_ids;
  Array<float, 2> top_logprobs;
};

int run_sample(futhark_context* context, const glm_sample_args& args,
               int64_t num_best, int64_t num_count_rows, SampleResult* result) {
  const int64_t rows = args.num_rows;
  const int64_t words = (int64_t{args.vocab_size} + 31) / 32;
  const Array<float, 2> logits(context, args.logits, rows, args.vocab_size);
  const Array<float, 1> temperature(context, args.temperature, rows);
  const Array<float, 1> top_p(context, args.top_p, rows);
  const Array<float, 1> min_p(context, args.min_p, rows);
  const Array<int32_t, 1> top_k(context, args.top_k, rows);
  const Array<float, 1> repetition(context, args.repetition_penalty, rows);
  const Array<float, 1> frequency(context, args.frequency_penalty, rows);
  const Array<float, 1> presence(context, args.presence_penalty, rows);
  const Array<uint64_t, 1> seed(context, args.seed, rows);
  const Array<int32_t, 1> position(context, args.position, rows);
  const Array<int32_t, 1> count_row(context, args.count_row, rows);
  const Array<int32_t, 1> mask_row(context, args.mask_row, rows);
  const Array<int32_t, 1> num_logprobs(context, args.num_logprobs, rows);
  const Array<int32_t, 1> forced_token(context, args.forced_token, rows);
  const int32_t earlier = num_earlier_ids(args);
  const Array<int32_t, 1> row_offset(context, args.row_offset, rows);
  const Array<int32_t, 1> input_ids(context, args.input_ids - earlier,
                                    earlier + rows);
  const Array<int32_t, 1> bias_begin(context, args.bias_begin, rows);
  const Array<int32_t, 1> bias_end(context, args.bias_end, rows);
  const Array<int32_t, 1> bias_tokens(context, args.bias_tokens,
                                      args.num_biases);
  const Array<float, 1> bias_values(context, args.bias_values, args.num_biases);
  const Array<uint32_t, 2> masks(context, args.masks, args.num_masks, words);
  const Array<uint32_t, 2> counts(context, args.counts, num_count_rows,
                                  args.vocab_size);
  return futhark_entry_sample(
      context, result->token_ids.slot(), result->is_finite.slot(),
      result->logprob.slot(), result->top_ids.slot(),
      result->top_logprobs.slot(), num_best, logits, temperature, top_p, min_p,
      top_k, repetition, frequency, presence, seed, position, row_offset,
      earlier, input_ids, count_row, mask_row, num_logprobs, forced_token,
      bias_begin, bias_end, bias_tokens, bias_values, masks, counts);
}

}

void count_tokens(glm_device& device, const glm_count_tokens_args& args) {
  const char* where = "count_tokens";
  expect_range(where, "vocab_size", 1, INT32_MAX, args.vocab_size);
  expect_range(where, "count_row", 0, INT32_MAX, args.count_row);
  expect_range(where, "num_tokens", 0, INT32_MAX, args.num_tokens);
  expect_pointer(where, "counts", args.counts);
  expect_indices(where, "token_ids", 0, args.vocab_size - 1, args.token_ids,
                 args.num_tokens);
  futhark_context* context = device.context;
  uint32_t* row = args.counts + int64_t{args.count_row} * args.vocab_size;
  const Array<int32_t, 1> token_ids(context, args.token_ids, args.num_tokens);
  const Array<uint32_t, 1> counts(context, row, args.vocab_size);
  Array<uint32_t, 1> result(context);
  check_kernel(
      context, where,
      futhark_entry_count_tokens(context, result.slot(), args.reset != 0,
                                 args.from_prompt != 0, token_ids, counts));
  result.copy_to(where, row, args.vocab_size);
}

void sample(glm_device& device, const glm_sample_args& args) {
  expect_range(kSample, "num_rows", 0, INT32_MAX - 1, args.num_rows);
  expect_range(kSample, "vocab_size", 1, INT32_MAX, args.vocab_size);
  expect_range(kSample, "num_count_rows", 0, INT32_MAX, args.num_count_rows);
  expect_range(kSample, "num_masks", 0, INT32_MAX, args.num_masks);
  expect_range(kSample, "num_biases", 0, INT32_MAX, args.num_biases);
  if (args.num_rows == 0) return;
  expect_controls(args);
  expect_drafts(args);
  expect_rows(args);
  const bool with_logprobs = wants_logprobs(args);
  expect_tables(args, with_logprobs);
  const int64_t num_best = with_logprobs ? GLM_MAX_LOGPROBS : 0;
  const int64_t num_count_rows =
      args.counts == nullptr ? 0 : args.num_count_rows;
  SampleResult result(device.context);
  check_kernel(
      device.context, kSample,
      run_sample(device.context, args, num_best, num_count_rows, &result));
  result.copy_to(args, num_best);
}

}
