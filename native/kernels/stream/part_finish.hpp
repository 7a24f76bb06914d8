#pragma once

#include <cstdint>

#include "native/kernels/stream/fragment_store.hpp"
#include "native/kernels/stream/part_exchange.hpp"
#include "native/kernels/stream/product_stage.hpp"

namespace glm::kernels::stream {

template <typename Layout, typename Output>
class PartFinish {
 public:
  static constexpr int32_t kGroups = Layout::kColumns / kGroupTokens;
  using Exchange = PartExchange<kGroups>;
  using Total = float[Layout::kColumns / 2];
  static constexpr bool kSends = Layout::kTokens <= kMostTokensSentAhead;
  using Words = WordStore<Output, kSends>;

  __device__ PartFinish(const ProductArgs& args, const ProductShape& shape,
                        const float* token_scales, int32_t first_token)
      : args_(args),
        shape_(shape),
        token_scales_(token_scales),
        first_token_(first_token) {}

  __device__ void finish(const Total& total, const Exchange& exchange,
                         const FragmentPlace& place,
                         const FragmentTerms& terms) const {
    if (shape_.stores_words) {
      return finish_with<Words>(total, exchange, place, terms);
    }
    finish_with<ValueStore<Output>>(total, exchange, place, terms);
  }

 private:
  template <typename Store>
  __device__ void finish_with(const Total& total, const Exchange& exchange,
                              const FragmentPlace& place,
                              const FragmentTerms& terms) const {
    if (shape_.split == 1) return store_alone<Store>(total, place, terms);
    if (Exchange::keeps_own(shape_)) {
      return store_kept<Store>(exchange, place, terms);
    }
    store_owned<Store>(total, exchange, place, terms);
  }

  __device__ const float* scales_of(const FragmentPlace& place) const {
    return token_scales_ + (place.token - first_token_) + place.lane % 4 * 2;
  }

  __device__ static float4 sum_of(const Total& total, int32_t group) {
    const float* values = total + group * 4;
    return {values[0], values[1], values[2], values[3]};
  }

  template <typename Store>
  __device__ void store_alone(const Total& total, const FragmentPlace& place,
                              const FragmentTerms& terms) const {
    Store store(args_, place);
    const float* scales = scales_of(place);
#pragma unroll
    for (int32_t group = 0; group < kGroups; ++group) {
      store.store(group, scale_fragment(terms, scales + group * kGroupTokens,
                                        sum_of(total, group)));
    }
  }

  template <typename Store>
  __device__ void store_kept(const Exchange& exchange,
                             const FragmentPlace& place,
                             const FragmentTerms& terms) const {
    Store store(args_, place);
    const float* scales = scales_of(place);
    int32_t count = exchange.num_owned();
#pragma unroll 1
    for (int32_t first = 0; first < count; first += Exchange::kBatch) {
      float4 sums[Exchange::kBatch];
      exchange.add_batch(sums, first);
#pragma unroll
      for (int32_t i = 0; i < Exchange::kBatch; ++i) {
        if (first + i >= count) break;
        int32_t group = exchange.owned_group(first + i);
        store.store(group, scale_fragment(terms, scales + group * kGroupTokens,
                                          sums[i]));
      }
    }
  }

  template <typename Store>
  __device__ void store_owned(const Total& total, const Exchange& exchange,
                              const FragmentPlace& place,
                              const FragmentTerms& terms) const {
    Store store(args_, place);
    const float* scales = scales_of(place);
    OwnerTurn turn = exchange.first_turn();
#pragma unroll
    for (int32_t group = 0; group < kGroups; ++group) {
      if (exchange.owns(turn)) {
        float4 sum = exchange.add_parts(turn, sum_of(total, group));
        store.store(group,
                    scale_fragment(terms, scales + group * kGroupTokens, sum));
      }
      turn.advance(shape_.split);
    }
  }

  const ProductArgs& args_;
  const ProductShape& shape_;
  const float* token_scales_;
  int32_t first_token_;
};

}
