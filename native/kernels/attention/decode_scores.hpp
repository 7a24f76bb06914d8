#ifndef GLM_KERNELS_ATTENTION_DECODE_SCORES_HPP
#define GLM_KERNELS_ATTENTION_DECODE_SCORES_HPP

#include <type_traits>

#include "native/kernels/attention/decode_bf16.hpp"
#include "native/kernels/attention/decode_f8.hpp"
#include "native/kernels/attention/decode_items.hpp"
#include "native/kernels/attention/split_softmax.hpp"
#include "native/ptx/mbarrier.hpp"
#include "native/ptx/warp_arrival.hpp"

namespace glm::kernels::decode {

template <typename S>
using Products = std::conditional_t<S::kIsF8, F8Products<S>, Bf16Products<S>>;

template <typename S>
struct Scorer {
  const Arguments& args;
  Shared<S>& shared;
  int32_t warp = static_cast<int32_t>(threadIdx.x) / 32;
  int32_t lane = static_cast<int32_t>(threadIdx.x) % 32;
  int32_t team = warp / S::kParts;
  int32_t part = warp % S::kParts;
  uint32_t turn = 0;
  RingCursor<S> ring;
  Cursor<kQueryBuffers> queries;

  __device__ __forceinline__ void take_query(uint32_t (&query)[S::kSteps][4]) {
    ptx::barrier_wait(&shared.query_full[queries.slot], queries.parity);
    Products<S>::load_query(shared.query[queries.slot], query);
    ptx::warp_arrive(&shared.query_empty[queries.slot]);
    queries.template advance<1>();
  }

  __device__ __forceinline__ void score(const uint32_t (&query)[S::kSteps][4],
                                        int32_t num_tokens,
                                        float (&scores)[kPartScores]) {
    RingCursor<S> stage = ring;
    stage.advance(part / kStageParts);
    if (part / kStageParts >= num_stages(num_tokens)) return;
    ptx::barrier_wait(&shared.full[stage.arrival.slot], stage.arrival.parity);
    if (part * kPartTokens < num_tokens) {
      const uint8_t* blocks =
          shared.ring[stage.place.slot][part % kStageParts * kPartBlocks];
      Products<S>::score_part(
          query, ptx::shared_address(blocks),
          reinterpret_cast<float (&)[2 * kPartBlocks][4]>(scores));
    }
    ptx::warp_arrive(&shared.empty[stage.place.slot]);
  }

  __device__ __forceinline__ void mask(int32_t num_tokens,
                                       float (&scores)[kPartScores]) const {
    const int32_t column = part * kPartTokens + lane % 4 * 2;
#pragma unroll
    for (int32_t i = 0; i < kPartScores; ++i)
      if (column + i / kFragmentScores * 8 + i % 2 >= num_tokens)
        scores[i] = -INFINITY;
  }

  __device__ __forceinline__ void find_tops(const float (&scores)[kPartScores],
                                            float (&tops)[kThreadRows]) {
    auto& of_parts = shared.part_tops[team][turn % 2];
#pragma unroll
    for (int32_t row = 0; row < kThreadRows; ++row) {
      const float top = row_maximum(scores, row);
      if (lane % 4 == 0) of_parts[lane / 4 + row * 8][part] = top;
    }
    asm volatile("bar.sync %0, %1;" ::"r"(1 + team), "n"(S::kParts * 32)
                 : "memory");
#pragma unroll
    for (int32_t row = 0; row < kThreadRows; ++row) {
      tops[row] = -INFINITY;
#pragma unroll
      for (int32_t i = 0; i < S::kParts; ++i)
        tops[row] = fmaxf(tops[row], of_parts[lane / 4 + row * 8][i]);
    }
  }

  __device__ __forceinline__ void hand_over(float (&scores)[kPartScores],
                                            float factor,
                                            const float (&tops)[kThreadRows]) {
    float totals[kThreadRows];
#pragma unroll
    for (int32_t row = 0; row < kThreadRows; ++row)
      totals[row] = weigh_part(scores, 0, row, factor,
                               exponent_offset(tops[row], factor));
    ptx::barrier_wait(&shared.weights_empty[team], turn % 2 ^ 1);
    Weights<S>& weights = shared.weights[team];
#pragma unroll
    for (int32_t block = 0; block < kPartBlocks; ++block) {
      const float* own = scores + block * 8;
      weights.blocks[part * kPartBlocks + block][lane] = make_uint4(
          Products<S>::pack(own[0], own[1]), Products<S>::pack(own[2], own[3]),
          Products<S>::pack(own[4], own[5]), Products<S>::pack(own[6], own[7]));
    }
    weights.totals[part][lane] = make_float2(totals[0], totals[1]);
    if (part == 0) weights.tops[lane] = make_float2(tops[0], tops[1]);
    ptx::warp_arrive(&shared.weights_full[team]);
  }

  __device__ __forceinline__ void attend(const uint32_t (&query)[S::kSteps][4],
                                         float factor, int32_t num_tokens) {
    float scores[kPartScores] = {};
    score(query, num_tokens, scores);
    if ((part + 1) * kPartTokens > num_tokens) mask(num_tokens, scores);
    float tops[kThreadRows];
    find_tops(scores, tops);
    hand_over(scores, factor, tops);
    ++turn;
  }
};

template <typename S>
__device__ void score_items(const Arguments& args, Shared<S>& shared) {
  Scorer<S> scorer = {args, shared};
  int32_t team = 0;
  for (Walk<S> walk(args, shared); !walk.is_done();) {
    const Item item = walk.take();
    const float factor = args.scale * scale_of<S>(args.key_scale, item.kv_head);
    uint32_t query[S::kSteps][4];
    scorer.take_query(query);
    int32_t rest = item.end - item.begin;
    do {
      const int32_t num_tokens = min(rest, S::kSplitTokens);
      if (team == scorer.team) scorer.attend(query, factor, num_tokens);
      scorer.ring.advance(num_stages(num_tokens));
      team = (team + 1) % S::kTeams;
      rest -= S::kSplitTokens;
    } while (rest > 0);
  }
}

}

#endif
