#pragma once

#include <cstdint>

#include "glm/backend.h"

namespace glm::kernels::sampling {

constexpr uint32_t kOutputCount = GLM_TOKEN_IN_PROMPT - 1;
constexpr int32_t kMaskBits = 32;

struct RowControls {
  float temperature;
  float top_p;
  float min_p;
  int32_t top_k;
  float repetition;
  float frequency;
  float presence;
  uint64_t seed;
  int32_t position;
  int32_t num_logprobs;
  int32_t forced_token;
  int32_t bias_begin;
  int32_t bias_end;
  const uint32_t* counts;
  const int32_t* drafts;
  int32_t num_drafts;
  const uint32_t* mask;
};

__device__ inline int32_t bounded_index(int32_t index, int32_t count) {
  return index < count ? index : -1;
}

__device__ inline void find_tables(const glm_sample_args& args, int32_t row,
                                   RowControls& controls) {
  int32_t counted = bounded_index(args.count_row[row], args.num_count_rows);
  int32_t masked = bounded_index(args.mask_row[row], args.num_masks);
  int64_t words = (int64_t{args.vocab_size} + kMaskBits - 1) / kMaskBits;
  controls.counts = counted < 0 || args.counts == nullptr
                        ? nullptr
                        : args.counts + int64_t{counted} * args.vocab_size;
  controls.num_drafts = controls.counts == nullptr ? 0 : args.row_offset[row];
  controls.drafts = args.input_ids + row + 1 - controls.num_drafts;
  controls.mask = masked < 0 ? nullptr : args.masks + masked * words;
  controls.bias_begin = max(args.bias_begin[row], 0);
  controls.bias_end = min(args.bias_end[row], args.num_biases);
}

__device__ inline RowControls controls_of(const glm_sample_args& args,
                                          int32_t row) {
  RowControls controls;
  controls.temperature = args.temperature[row];
  controls.top_p = args.top_p[row];
  controls.min_p = args.min_p[row];
  controls.top_k = args.top_k[row];
  controls.repetition = args.repetition_penalty[row];
  controls.frequency = args.frequency_penalty[row];
  controls.presence = args.presence_penalty[row];
  controls.seed = args.seed[row];
  controls.position = args.position[row];
  controls.num_logprobs = min(args.num_logprobs[row], GLM_MAX_LOGPROBS);
  controls.forced_token =
      bounded_index(args.forced_token[row], args.vocab_size);
  find_tables(args, row, controls);
  return controls;
}

}
