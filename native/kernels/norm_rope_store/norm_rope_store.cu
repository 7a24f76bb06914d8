#include "native/base/cuda.hpp"
#include "native/kernels/kv_cache.hpp"
#include "native/kernels/norm_rope_store/head_stores.hpp"
#include "native/kernels/norm_rope_store/head_values.hpp"
#include "native/kernels/norm_rope_store/norm_rope_store.hpp"
#include "native/kernels/shapes/shapes.hpp"
#include "native/ptx/dependent_launch.hpp"

namespace glm::kernels {
namespace {

using heads::Gains;
using heads::Launch;

constexpr int32_t kMostThreads = 224;
constexpr int32_t kWarpThreads = 32;
constexpr int32_t kMostHeads = 4;
constexpr int32_t kBlocksAtOnce = 4;

constexpr int32_t least_resident_blocks(int32_t heads_at_once) {
  return heads_at_once == kMostHeads ? 3 : kBlocksAtOnce;
}

constexpr int32_t most_launched_blocks(int32_t heads_at_once) {
  return heads_at_once == 1 ? 1 : kBlocksAtOnce;
}

struct Share {
  int32_t first;
  int32_t count;
};

template <int32_t heads_at_once>
__device__ Share share_of(const Launch& launch, int32_t group) {
  const int32_t num_heads = launch.args.num_heads;
  const int32_t query_groups = (num_heads + heads_at_once - 1) / heads_at_once;
  int32_t first = group * heads_at_once;
  int32_t end = num_heads;
  if (group >= query_groups) {
    first = num_heads + (group - query_groups) * heads_at_once;
    end += 2 * launch.cache.num_kv_heads;
  }
  return {first, min(end - first, heads_at_once)};
}

struct Place {
  int32_t token;
  int32_t dim;
  Share share;
  bool is_query;
  uint8_t* page;
};

template <int32_t heads_at_once>
__device__ Place place_of(const Launch& launch) {
  const int32_t lanes = launch.lanes_per_head;
  const int32_t thread = static_cast<int32_t>(threadIdx.x);
  const int32_t group =
      static_cast<int32_t>(blockIdx.y * blockDim.x) / lanes + thread / lanes;
  Place place;
  place.token = static_cast<int32_t>(blockIdx.x);
  place.dim = thread % lanes * heads::kLaneDims;
  place.share = share_of<heads_at_once>(launch, group);
  place.is_query = heads::is_query(launch, place.share.first);
  place.page =
      place.is_query
          ? nullptr
          : heads::page_row(launch, launch.args.slots[place.token], place.dim);
  return place;
}

__device__ const __nv_bfloat16* first_head(const Launch& launch,
                                           const Place& place) {
  const int32_t num_heads =
      launch.args.num_heads + 2 * launch.cache.num_kv_heads;
  const int32_t head = min(place.share.first, num_heads - 1);
  return static_cast<const __nv_bfloat16*>(launch.args.qkv) +
         (int64_t{place.token} * num_heads + head) * launch.cache.head_dim;
}

template <bool scaled>
__device__ void store_page_head(const Launch& launch, const Place& place,
                                int32_t head, uint4 raw,
                                const heads::Values& values) {
  const int32_t kv_head = head - launch.args.num_heads;
  const int32_t value_head = kv_head - launch.cache.num_kv_heads;
  if (value_head < 0)
    heads::store_page<scaled>(launch, place.page, kv_head, false, values);
  else
    heads::store_page<scaled>(launch, place.page, value_head, true,
                              heads::to_floats(raw));
}

template <bool aligned, int32_t num>
struct OwnHeads {
  const __nv_bfloat16* first;
  uint4 raw[num];
  float factor[num];

  __device__ OwnHeads(const Launch& launch, const Place& place, bool has_norm)
      : first(first_head(launch, place)) {
#pragma unroll
    for (int32_t i = 0; i < num; ++i)
      raw[i] = heads::load_raw<aligned>(at(launch, place, i), place.dim,
                                        launch.cache.head_dim);
    heads::inverse_norms(launch, raw, factor);
    if (has_norm) return;
#pragma unroll
    for (int32_t i = 0; i < num; ++i) factor[i] = 1.0f;
  }

  __device__ const __nv_bfloat16* at(const Launch& launch, const Place& place,
                                     int32_t i) const {
    return first +
           max(min(i, place.share.count - 1), 0) * launch.cache.head_dim;
  }

  __device__ heads::Values turned(const Launch& launch, const Place& place,
                                  const Gains& gains, int32_t i) const {
    const uint4 partner = heads::load_partner<aligned>(
        launch, at(launch, place, i), place.dim, raw[i]);
    return heads::normed_and_turned(raw[i], partner, gains, factor[i]);
  }
};

template <bool aligned, bool scaled, int32_t num>
__device__ void finish_heads(const Launch& launch, const Place& place,
                             const Gains& gains, bool has_norm) {
  const OwnHeads<aligned, num> own(launch, place, has_norm);
  const bool holds_queries = __any_sync(~0u, place.is_query);
  const bool holds_pages = __any_sync(~0u, !place.is_query);
  __nv_bfloat16* query =
      heads::query_row(launch, place.token, place.share.first);
  if (holds_queries)
#pragma unroll
    for (int32_t i = 0; i < num; ++i) {
      const heads::Values values = own.turned(launch, place, gains, i);
      if (place.is_query && i < place.share.count)
        heads::store_query<aligned>(launch, query + i * launch.cache.head_dim,
                                    place.dim, values);
    }
  if (holds_pages)
#pragma unroll
    for (int32_t i = 0; i < num; ++i) {
      const heads::Values values = own.turned(launch, place, gains, i);
      if (!place.is_query && i < place.share.count)
        store_page_head<scaled>(launch, place, place.share.first + i,
                                own.raw[i], values);
    }
}

template <bool aligned, int32_t heads_at_once, bool scaled>
__global__ __launch_bounds__(
    kMostThreads,
    least_resident_blocks(
        heads_at_once)) void norm_rope_store_kernel(Launch launch) {
  ptx::let_successor_start();
  const Place place = place_of<heads_at_once>(launch);
  const float* weight =
      place.is_query ? launch.args.query_norm : launch.args.key_norm;
  Gains gains = heads::load_gains<aligned>(launch, place.dim, weight);
  gains = heads::turn_gains<aligned>(launch, place.token, place.dim, gains);
  ptx::wait_for_predecessor();
  finish_heads<aligned, scaled, heads_at_once>(launch, place, gains,
                                               weight != nullptr);
}

bool is_aligned(const void* pointer) {
  return reinterpret_cast<uintptr_t>(pointer) % 16 == 0;
}

bool allows_wide_accesses(const Launch& launch) {
  const glm_norm_rope_store_args& args = launch.args;
  return launch.cache.head_dim % heads::kLaneDims == 0 &&
         args.rotary_dim % (2 * heads::kLaneDims) == 0 &&
         is_aligned(args.qkv) && is_aligned(args.query) &&
         is_aligned(args.query_norm) && is_aligned(args.key_norm) &&
         is_aligned(args.cosine) && is_aligned(args.sine);
}

struct Blocks {
  int32_t of_token;
  int32_t num_threads;
};

Blocks blocks_of(const Launch& launch, int32_t heads_at_once) {
  const int64_t num_groups =
      ceil_divide(launch.args.num_heads, heads_at_once) +
      ceil_divide(2 * int64_t{launch.cache.num_kv_heads}, heads_at_once);
  const int64_t num_blocks =
      ceil_divide(num_groups, kMostThreads / launch.lanes_per_head);
  const int64_t num_threads =
      round_up(ceil_divide(num_groups, num_blocks) * launch.lanes_per_head,
               kWarpThreads);
  return {static_cast<int32_t>(num_blocks), static_cast<int32_t>(num_threads)};
}

template <bool aligned, int32_t heads_at_once>
void launch_heads(const Context& context, const Launch& arguments) {
  const Blocks blocks = blocks_of(arguments, heads_at_once);
  LaunchShape shape;
  shape.grid = dim3(static_cast<uint32_t>(arguments.args.num_tokens),
                    static_cast<uint32_t>(blocks.of_token));
  shape.block = dim3(static_cast<uint32_t>(blocks.num_threads));
  launch("norm_rope_store", context.stream, shape,
         has_scales(arguments.cache)
             ? norm_rope_store_kernel<aligned, heads_at_once, true>
             : norm_rope_store_kernel<aligned, heads_at_once, false>,
         arguments);
}

void launch_wide(const Context& context, const Launch& arguments,
                 int32_t heads_at_once) {
  if (heads_at_once == 1) return launch_heads<true, 1>(context, arguments);
  if (heads_at_once == 2) return launch_heads<true, 2>(context, arguments);
  launch_heads<true, kMostHeads>(context, arguments);
}

void expect_arguments(const char* where, const glm_norm_rope_store_args& args) {
  expect_kv_cache(where, args.cache);
  expect_norm_rope_store_shapes(args);
  expect_pointer(where, "positions", args.positions);
  expect_pointer(where, "slots", args.slots);
  expect_pointer(where, "qkv", args.qkv);
  expect_pointer(where, "query", args.query);
  if (args.rotary_dim == 0) return;
  expect_pointer(where, "cosine", args.cosine);
  expect_pointer(where, "sine", args.sine);
}

int32_t lanes_for(const glm_kv_cache& cache) {
  const int32_t padded = num_halves(cache.dtype, cache.head_dim) * kHalfBytes /
                         dtype_bytes(cache.dtype);
  int32_t lanes = 1;
  while (lanes * heads::kLaneDims < padded) lanes *= 2;
  return lanes;
}

float exact_inverse(int32_t divisor) {
  const bool is_power_of_two = (divisor & (divisor - 1)) == 0;
  return is_power_of_two ? 1.0f / static_cast<float>(divisor) : 0.0f;
}

}

void norm_rope_store(const Context& context,
                     const glm_norm_rope_store_args& args) {
  const char* where = "norm_rope_store";
  expect_range(where, "num_tokens", 0, INT32_MAX, args.num_tokens);
  if (args.num_tokens == 0) return;
  expect_arguments(where, args);
  const Launch arguments = {args, *args.cache, lanes_for(*args.cache),
                            exact_inverse(args.cache->head_dim)};
  if (!allows_wide_accesses(arguments))
    return launch_heads<false, 1>(context, arguments);
  for (int32_t heads_at_once : {1, 2}) {
    const int64_t of_token = blocks_of(arguments, heads_at_once).of_token;
    const int32_t most =
        of_token == 1 ? kBlocksAtOnce : most_launched_blocks(heads_at_once);
    if (args.num_tokens * of_token <=
        int64_t{most} * context.num_multiprocessors)
      return launch_wide(context, arguments, heads_at_once);
  }
  launch_wide(context, arguments, kMostHeads);
}

}
