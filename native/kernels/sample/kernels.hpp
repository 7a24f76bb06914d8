#pragma once

#include <cstdint>

#include "native/kernels/sample/draw.hpp"
#include "native/kernels/sample/greedy.hpp"
#include "native/kernels/sample/logprobs.hpp"
#include "native/ptx/dependent_launch.hpp"

namespace glm::kernels::sampling {

constexpr int32_t kGreedyResident = 3;
constexpr int32_t kDrawResident = 2;
constexpr int32_t kQuadsInFlight = 4;

__device__ inline RowOutputs outputs_of(const glm_sample_args& args,
                                        int32_t row) {
  int64_t best = int64_t{row} * GLM_MAX_LOGPROBS;
  return {args.token_ids + row, args.is_finite + row,
          args.logprob == nullptr ? nullptr : args.logprob + row,
          args.top_ids == nullptr ? nullptr : args.top_ids + best,
          args.top_logprobs == nullptr ? nullptr : args.top_logprobs + best};
}

__device__ inline void write_token(const RowOutputs& outputs, int32_t token,
                                   bool all_finite) {
  if (threadIdx.x != 0) return;
  *outputs.token_id = token;
  *outputs.is_finite = all_finite ? 1 : 0;
}

template <int32_t in_flight>
__device__ void take_greatest(const glm_sample_args& args, int32_t row,
                              const RowControls& controls, Exchange& exchange,
                              const Part& part) {
  uint64_t own =
      greatest_rank<in_flight>(given_row(args, row, controls), controls, part,
                               [](int32_t, const float4&) {});
  ptx::cluster_wait();
  uint64_t best = exchange.best_of({own, 0}).score;
  if (!is_leader()) return;
  bool all_finite = best != kNotFinite;
  RowOutputs outputs = outputs_of(args, row);
  write_token(outputs, all_finite ? token_of(best) : -1, all_finite);
  write_no_logprobs(outputs);
}

__global__ void __launch_bounds__(kThreads, kGreedyResident)
    greedy_tokens(glm_sample_args args, int32_t num_blocks) {
  __shared__ ExchangeShared shared;
  ptx::wait_for_predecessor();
  ptx::let_successor_start();
  int32_t row = static_cast<int32_t>(blockIdx.x) / num_blocks;
  RowControls controls = controls_of(args, row);
  if (!is_greedy(controls)) return;
  ptx::cluster_arrive();
  Exchange exchange(shared, num_blocks);
  take_greatest<kQuadsInFlight>(args, row, controls, exchange,
                                part_of(args.vocab_size, num_blocks));
}

__device__ inline void add_biases(const glm_sample_args& args,
                                  const RowControls& controls, Row& row) {
  for (int32_t i = controls.bias_begin; i < controls.bias_end; ++i) {
    int32_t at = args.bias_tokens[i] - row.part.begin;
    if (at < 0 || at >= row.part.count || at % kThreads != threadIdx.x)
      continue;
    float& value = row.shared.values[at];
    if (value != minus_infinity()) value = bounded(value + args.bias_values[i]);
  }
}

__device__ inline uint64_t own_greatest(const Row& row) {
  Greatest greatest;
  row.for_each_token(
      [&](int32_t token, float value) { greatest.consider(token, value); });
  return greatest.rank();
}

__device__ inline uint64_t adjust_row(const glm_sample_args& args,
                                      const GivenRow& given,
                                      const RowControls& controls, Row& row) {
  float* values = row.shared.values;
  int32_t begin = row.part.begin;
  uint64_t own = greatest_rank<kQuadsInFlight>(
      given, controls, row.part, [=](int32_t at, const float4& quad) {
        *reinterpret_cast<float4*>(values + at - begin) = quad;
      });
  if (controls.bias_begin >= controls.bias_end) return own;
  __syncthreads();
  add_biases(args, controls, row);
  __syncthreads();
  return own == kNotFinite ? own : own_greatest(row);
}

struct Normaliser {
  bool is_wanted;
  double value;
};

__device__ inline Normaliser prepare_logprobs(Row& row,
                                              const RowControls& controls,
                                              uint64_t own, uint64_t largest) {
  if (controls.num_logprobs < 0 || largest == 0) return {false, 0.0};
  double value = log_sum_exp(row, value_of(largest));
  find_best(row, own, controls.num_logprobs);
  return {true, value};
}

__device__ inline void write_row(const glm_sample_args& args,
                                 const GivenRow& given,
                                 const RowControls& controls, Row& row,
                                 const RowOutputs& outputs, int32_t token,
                                 const Normaliser& normaliser) {
  if (is_leader() && !normaliser.is_wanted) write_no_logprobs(outputs);
  if (is_leader() && normaliser.is_wanted) {
    float value =
        token < 0
            ? minus_infinity()
            : static_cast<float>(adjusted_logit(args, given, controls, token) -
                                 normaliser.value);
    write_logprob(outputs, value);
    write_best(row, outputs, controls.num_logprobs, normaliser.value);
  }
  __syncwarp();
  if (is_leader()) write_token(outputs, token, true);
  if (normaliser.is_wanted) cluster_barrier();
}

__device__ inline void draw_token(const glm_sample_args& args, int32_t index,
                                  const RowControls& controls, Row& row) {
  RowOutputs outputs = outputs_of(args, index);
  GivenRow given = given_row(args, index, controls);
  uint64_t own = adjust_row(args, given, controls, row);
  ptx::cluster_wait();
  uint64_t largest = row.exchange.best_of({own, 0}).score;
  if (largest == kNotFinite) {
    if (is_leader()) write_token(outputs, -1, false);
    if (is_leader()) write_no_logprobs(outputs);
    return;
  }
  Normaliser normaliser = prepare_logprobs(row, controls, own, largest);
  int32_t token = token_of(largest);
  if (token >= 0 && controls.forced_token >= 0)
    token = controls.forced_token;
  else if (token >= 0 && controls.temperature != 0.0f)
    token = draw(row, controls, value_of(largest));
  write_row(args, given, controls, row, outputs, token, normaliser);
}

__global__ void __launch_bounds__(kThreads, kDrawResident)
    drawn_tokens(glm_sample_args args, bool takes_greedy) {
  extern __shared__ uint4 memory[];
  ptx::wait_for_predecessor();
  ptx::let_successor_start();
  int32_t index = static_cast<int32_t>(blockIdx.x) / kRowBlocks;
  RowControls controls = controls_of(args, index);
  bool greedy = is_greedy(controls);
  if (greedy && !takes_greedy) return;
  ptx::cluster_arrive();
  Row row(*reinterpret_cast<RowShared*>(memory), args.vocab_size);
  if (greedy)
    take_greatest<kQuadsInFlight>(args, index, controls, row.exchange,
                                  row.part);
  else
    draw_token(args, index, controls, row);
}

}
