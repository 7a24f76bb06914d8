#ifndef GLM_KERNELS_ATTENTION_DECODE_VALUES_HPP
#define GLM_KERNELS_ATTENTION_DECODE_VALUES_HPP

#include "native/kernels/attention/decode_partials.hpp"
#include "native/kernels/attention/decode_scores.hpp"

namespace glm::kernels::decode {

template <typename S>
struct State {
  float sums[S::kWarpTiles][4] = {};
  float tops[kThreadRows] = {-INFINITY, -INFINITY};
  float totals[kThreadRows] = {};

  __device__ __forceinline__ void fold(const State& next, float factor) {
#pragma unroll
    for (int32_t row = 0; row < kThreadRows; ++row) {
      const Fold folded = fold_of(tops[row], next.tops[row], factor);
      tops[row] = folded.top;
      totals[row] = folded(totals[row], next.totals[row]);
#pragma unroll
      for (int32_t i = 0; i < S::kWarpTiles * 2; ++i) {
        float& sum = sums[i / 2][row * 2 + i % 2];
        sum = folded(sum, next.sums[i / 2][row * 2 + i % 2]);
      }
    }
  }
};

struct Keep {
  int32_t num_tokens;

  __device__ uint32_t operator()(uint32_t pair, int32_t) const { return pair; }
};

struct ClearPast {
  int32_t num_tokens;

  __device__ uint32_t operator()(uint32_t pair, int32_t first) const {
    const int32_t token = first + static_cast<int32_t>(threadIdx.x) % 4 * 2;
    if (token >= num_tokens) return 0;
    return token + 1 < num_tokens ? pair : pair & 0xFFFF;
  }
};

template <typename S>
struct Valuer {
  static constexpr int32_t kChunkTiles = Products<S>::kChunkDims / 8;
  static constexpr int32_t kWarpChunks = S::kWarpTiles / kChunkTiles;
  static constexpr int32_t kPartsAtOnce = S::kDims <= 128 ? kStageParts : 1;

  const Arguments& args;
  Shared<S>& shared;
  int32_t warp = static_cast<int32_t>(threadIdx.x) / 32 - kScoreWarps;
  int32_t lane = static_cast<int32_t>(threadIdx.x) % 32;
  RingCursor<S> ring;
  Cursor<S::kTeams> teams;

  struct Values {
    ptx::Fragments chunks[kPartsAtOnce][kWarpChunks];
  };

  __device__ __forceinline__ void load_values(int32_t part,
                                              Values& values) const {
    const uint32_t blocks =
        ptx::shared_address(
            shared.ring[ring.place.slot][part % kStageParts * kPartBlocks]) +
        lane / 16 * S::kBlockBytes + S::kHalves * kHalfBlockBytes;
#pragma unroll
    for (int32_t i = 0; i < kPartsAtOnce * kWarpChunks; ++i) {
      const int32_t chunk = warp * kWarpChunks + i % kWarpChunks;
      values.chunks[i / kWarpChunks][i % kWarpChunks] =
          ptx::load_transposed_matrices(
              blocks + i / kWarpChunks * kPartBlocks * S::kBlockBytes +
              chunk / 8 * kHalfBlockBytes +
              swizzle(lane % 16, chunk % 8 * kChunkBytes));
    }
  }

  template <typename Clear>
  __device__ __forceinline__ void add_parts(const uint4 (*packed)[32],
                                            const Values& values,
                                            int32_t num_tokens,
                                            State<S>& state) const {
    constexpr int32_t kBlocks = kPartsAtOnce * kPartBlocks;
    uint4 weights[kBlocks];
#pragma unroll
    for (int32_t i = 0; i < kBlocks; ++i) weights[i] = packed[i][lane];
#pragma unroll
    for (int32_t i = 0; i < kBlocks * kWarpChunks; ++i) {
      const int32_t block = i / kWarpChunks;
      const int32_t chunk = i % kWarpChunks;
      const auto& own = values.chunks[block / kPartBlocks][chunk].at;
      const Clear clear = {num_tokens - block * kBlockTokens};
      Products<S>::add_values(weights[block], own[block % kPartBlocks * 2],
                              own[block % kPartBlocks * 2 + 1], clear,
                              state.sums + chunk * kChunkTiles);
    }
  }

  __device__ __forceinline__ void wait_for_stage() {
    ptx::barrier_wait(&shared.full[ring.arrival.slot], ring.arrival.parity);
  }

  __device__ __forceinline__ void leave_stage() {
    ptx::warp_arrive(&shared.empty[ring.place.slot]);
    ring.advance(1);
  }

  __device__ __forceinline__ void take_totals(const Weights<S>& weights,
                                              State<S>& state) {
    ptx::barrier_wait(&shared.weights_full[teams.slot], teams.parity);
    float of_parts[kThreadRows][S::kParts];
#pragma unroll
    for (int32_t part = 0; part < S::kParts; ++part) {
      const float2 totals = weights.totals[part][lane];
      of_parts[0][part] = totals.x;
      of_parts[1][part] = totals.y;
    }
    const float2 tops = weights.tops[lane];
    state.tops[0] = tops.x;
    state.tops[1] = tops.y;
#pragma unroll
    for (int32_t row = 0; row < kThreadRows; ++row)
      state.totals[row] = split_total(of_parts[row]);
  }

  __device__ __forceinline__ void take(int32_t num_tokens, State<S>& state) {
    constexpr int32_t kTokensAtOnce = kPartsAtOnce * kPartTokens;
    const Weights<S>& weights = shared.weights[teams.slot];
#pragma unroll
    for (int32_t part = 0; part < S::kParts; part += kPartsAtOnce) {
      const int32_t rest = num_tokens - part * kPartTokens;
      const bool has_stage = rest + part % kStageParts * kPartTokens > 0;
      Values values;
      if (has_stage) {
        if (part % kStageParts == 0) wait_for_stage();
        load_values(part, values);
      }
      if (part == 0) take_totals(weights, state);
      if (!has_stage) break;
      if ((part + kPartsAtOnce) % kStageParts == 0) leave_stage();
      const auto* packed = weights.blocks + part * kPartBlocks;
      if (rest >= kTokensAtOnce)
        add_parts<Keep>(packed, values, rest, state);
      else
        add_parts<ClearPast>(packed, values, rest, state);
    }
    ptx::warp_arrive(&shared.weights_empty[teams.slot]);
    teams.template advance<1>();
  }

  template <typename Store>
  __device__ __forceinline__ void for_each_pair(const State<S>& state,
                                                const Store& store) const {
#pragma unroll
    for (int32_t part = 0; part < kThreadRows; ++part) {
      const int32_t row = lane / 4 + part * 8;
      if (row >= args.group) continue;
#pragma unroll
      for (int32_t pair = 0; pair < S::kWarpTiles; ++pair)
        store(row, part,
              warp * S::kWarpTiles * 8 + Products<S>::dim_of(pair, lane),
              Products<S>::pair_of(state.sums, pair, part));
    }
  }

  __device__ __forceinline__ void store_output(const Item& item,
                                               const State<S>& state) const {
    const float scale = scale_of<S>(args.value_scale, item.kv_head);
    float inverse[kThreadRows];
#pragma unroll
    for (int32_t row = 0; row < kThreadRows; ++row)
      inverse[row] = output_factor(quad_sum(state.totals[row]), scale);
    for_each_pair(
        state, [&](int32_t row, int32_t part, int32_t dim, const float2& pair) {
          store_pair(args, item, row, dim, pair, inverse[part]);
        });
  }

  __device__ __forceinline__ void store_partial(int32_t slot,
                                                const State<S>& state) const {
    float* partial = args.partials + slot * partial_values<S>(args);
    for_each_pair(state, [&](int32_t row, int32_t, int32_t dim,
                             const float2& pair) {
      __stcg(reinterpret_cast<float2*>(partial + row * S::kPartialStride + dim),
             pair);
    });
    if (warp > 0) return;
#pragma unroll
    for (int32_t part = 0; part < kThreadRows; ++part) {
      const int32_t row = lane / 4 + part * 8;
      if (row >= args.group) continue;
      float* totals = partial + row * S::kPartialStride + S::kDims;
      __stcg(totals + lane % 4, state.totals[part]);
      if (lane % 4 == 0) __stcg(totals + kTopPlace, state.tops[part]);
    }
  }
};

template <typename S>
__device__ void value_items(const Arguments& args, Shared<S>& shared) {
  Valuer<S> valuer = {args, shared};
  for (Walk<S> walk(args, shared); !walk.is_done();) {
    const Item item = walk.take();
    const float factor = args.scale * scale_of<S>(args.key_scale, item.kv_head);
    State<S> folded;
    int32_t split = item.first_split;
    int32_t rest = item.end - item.begin;
    do {
      State<S> next;
      valuer.take(min(rest, S::kSplitTokens), next);
      if (item.is_folded())
        folded.fold(next, factor);
      else
        valuer.store_partial(slot_of_split(args, item, split), next);
      ++split;
      rest -= S::kSplitTokens;
    } while (rest > 0);
    if (item.is_whole())
      valuer.store_output(item, folded);
    else if (item.is_folded())
      valuer.store_partial(slot_of_fold(args, blockIdx.x), folded);
  }
}

}

#endif
