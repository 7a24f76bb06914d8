#include <algorithm>
#include <string>

#include "native/collectives/peer/peer_rank.hpp"
#include "native/kernels/quantise/codes_of_row.hpp"
#include "native/kernels/reduce_add_norm_quantise/exchange_rows.hpp"
#include "native/kernels/reduce_add_norm_quantise/reduce_add_norm_quantise.hpp"
#include "native/kernels/rows/checks.hpp"
#include "native/kernels/rows/norm.hpp"
#include "native/kernels/shapes/shapes.hpp"
#include "native/ptx/dependent_launch.hpp"

namespace glm::kernels {
namespace {

constexpr char kWhere[] = "reduce_add_norm_quantise";
constexpr int32_t kFewRows = 16;

using norm::NormRows;
using norm::Way;
using rows::Bf16Chunk;
using rows::FloatChunk;

template <Way way, int32_t num_chunks, bool aligned>
__device__ void add_delta(const NormRows& args, int32_t row_index,
                          int64_t offset, Bf16Chunk (&row)[num_chunks]) {
  Bf16Chunk delta[num_chunks];
#pragma unroll
  for (int32_t i = 0; i < num_chunks; ++i)
    row[i] = rows::load<Bf16Chunk, __nv_bfloat16, aligned>(
        args.residual + offset, norm::chunk_begin<way>(i), args.width);
  if (args.delta == nullptr) return;
#pragma unroll
  for (int32_t i = 0; i < num_chunks; ++i)
    delta[i] =
        norm::load_delta<aligned>(args, row_index, norm::chunk_begin<way>(i));
#pragma unroll
  for (int32_t i = 0; i < num_chunks; ++i) {
    FloatChunk sum = rows::widen(row[i]);
    norm::add_to(sum, rows::widen(delta[i]));
    row[i] = rows::narrow(sum);
    rows::store<Bf16Chunk, __nv_bfloat16, aligned>(
        args.residual + offset, norm::chunk_begin<way>(i), args.width, row[i]);
  }
}

template <int32_t world_size, int32_t num_chunks, bool aligned,
          typename ValuesOf>
__device__ void write_codes_to_ranks(const NormRows& args, ValuesOf&& values_of,
                                     float largest, uint8_t* codes,
                                     float* row_scale) {
  const float scale = row_scale_of(largest);
  const RowQuotient quotient(scale);
  rows::CodeChunk chunks[num_chunks];
#pragma unroll
  for (int32_t i = 0; i < num_chunks; ++i)
    chunks[i] = encode(values_of(i), quotient);
#pragma unroll
  for (int32_t step = 1; step <= world_size; ++step) {
    const int32_t peer = (args.exchange.rank + step) % world_size;
    const int64_t distance = args.exchange.distance[peer];
    if (threadIdx.x == 0)
      *collectives::at_distance(row_scale, distance) = scale;
#pragma unroll
    for (int32_t i = 0; i < num_chunks; ++i)
      rows::store<rows::CodeChunk, uint8_t, aligned>(
          collectives::at_distance(codes, distance), rows::chunk_begin(i),
          args.width, chunks[i]);
  }
}

template <int32_t world_size, Way way, int32_t num_chunks, bool aligned>
__device__ void norm_row(const NormRows& args, int32_t row,
                         const FloatChunk (&weight)[num_chunks],
                         rows::MeasureBuffer& buffer, int32_t parity) {
  const int32_t kept = norm::kept_row<world_size, way>(row);
  int64_t offset = int64_t{kept} * args.width;
  Bf16Chunk chunks[num_chunks];
  if constexpr (world_size == 1)
    add_delta<way, num_chunks, aligned>(args, row, offset, chunks);
  else
    norm::exchange_row<world_size, way, num_chunks, aligned>(args, row, chunks);
  rows::RowMeasure own = {0.0f, 0u};
#pragma unroll
  for (int32_t i = 0; i < num_chunks; ++i)
    rows::measure(chunks[i], weight[i], own);
  rows::RowMeasure whole =
      rows::row_measure<norm::kParts<way>>(own, buffer, parity);
  float factor = rows::norm_factor(whole, args.width, args.epsilon);
  auto values_of = [&](int32_t i) {
    return rows::normed(chunks[i], weight[i], factor);
  };
  if (args.plain != nullptr)
#pragma unroll
    for (int32_t i = 0; i < num_chunks; ++i)
      rows::store<Bf16Chunk, __nv_bfloat16, aligned>(
          args.plain + offset, norm::chunk_begin<way>(i), args.width,
          rows::narrow(values_of(i)));
  if (args.codes == nullptr) return;
  float largest = __uint_as_float(whole.largest_bits) * factor;
  uint8_t* codes = args.codes + int64_t{row} * args.width;
  float* row_scale = args.row_scale + row;
  if constexpr (way == Way::scattered)
    write_codes_to_ranks<world_size, num_chunks, aligned>(
        args, values_of, largest, codes, row_scale);
  else
    write_codes<num_chunks, aligned, norm::kParts<way>>(
        values_of, largest, args.width, codes, row_scale);
}

template <int32_t world_size, int32_t num_chunks, bool aligned>
__global__ void __launch_bounds__(rows::kMaxThreads)
    send_alone(__grid_constant__ const NormRows args) {
  ptx::wait_for_predecessor();
  const int32_t first = blockIdx.x;
  if (args.exchange.has_owners)
    return norm::send_rows<world_size, Way::by_owners, num_chunks, aligned>(
        args, first, args.num_tokens);
  norm::send_rows<world_size, Way::to_all, num_chunks, aligned>(
      args, first, args.num_tokens);
}

template <int32_t world_size, int32_t num_chunks, bool aligned>
__global__ void __launch_bounds__(rows::kMaxThreads)
    add_alone(__grid_constant__ const NormRows args) {
  ptx::wait_for_predecessor();
#pragma unroll 1
  for (int32_t row = blockIdx.x; row < args.num_tokens; row += gridDim.x)
    if (collectives::owns<world_size>(args.exchange, row))
      norm::send_sum_of_row<world_size, num_chunks, aligned>(args, row);
}

template <int32_t world_size, Way way, int32_t num_chunks, bool aligned>
__global__ void __launch_bounds__(rows::kMaxThreads)
    norm_rows(__grid_constant__ const NormRows args) {
  __shared__ rows::MeasureBuffer buffer;
  const bool has_few = args.num_tokens <= kFewRows;
  if (has_few) ptx::let_successor_start();
  rows::begin_measure<norm::kParts<way>>(buffer);
  FloatChunk weight[num_chunks];
#pragma unroll
  for (int32_t i = 0; i < num_chunks; ++i)
    weight[i] = rows::load_floats<aligned>(
        args.weight, norm::chunk_begin<way>(i), args.width);
  const int32_t first = norm::first_row<world_size, way>(args.exchange);
  int32_t turn = 0;
#pragma unroll 1
  for (int32_t row = first; row < args.num_tokens;
       row += norm::rows_apart<world_size, way>()) {
    if (row == first) {
      ptx::wait_for_predecessor();
      if (!has_few) ptx::let_successor_start();
    }
    if constexpr (world_size == 1)
      norm::prefetch_next_row<world_size, way, aligned>(args, row);
    else if constexpr (way != Way::scattered)
      if (!args.exchange.is_sent)
        norm::send_before<world_size, way, num_chunks, aligned>(args, row);
    norm_row<world_size, way, num_chunks, aligned>(args, row, weight, buffer,
                                                   turn % 2);
    ++turn;
  }
  if constexpr (way == Way::scattered) __threadfence_system();
}

NormRows rows_of(const glm_reduce_add_norm_quantise_args& args, int32_t begin,
                 int32_t kept_begin, int32_t num_rows) {
  const int64_t offset = int64_t{begin} * args.hidden_size;
  const int64_t kept_offset = int64_t{kept_begin} * args.hidden_size;
  auto kept = [&](auto* pointer) {
    return pointer == nullptr ? nullptr : pointer + kept_offset;
  };
  const auto* delta = static_cast<const __nv_bfloat16*>(args.delta);
  const glm_activation_output& output = args.output;
  return {num_rows,
          args.hidden_size,
          args.epsilon,
          kept(static_cast<__nv_bfloat16*>(args.residual)),
          delta == nullptr ? nullptr : delta + offset,
          args.weight,
          kept(static_cast<__nv_bfloat16*>(output.plain)),
          output.codes == nullptr ? nullptr : output.codes + offset,
          output.row_scale == nullptr ? nullptr : output.row_scale + begin,
          {}};
}

enum class Work { norm, sending, adding };

int32_t rows_of_rank(int32_t num_rows, int32_t rank, int32_t world_size) {
  return static_cast<int32_t>(
      ceil_divide(std::max(num_rows - rank, 0), world_size));
}

template <int32_t world_size, Way way>
int32_t rows_kept(const NormRows& given) {
  return way == Way::scattered
             ? rows_of_rank(given.num_tokens, given.exchange.rank, world_size)
             : given.num_tokens;
}

template <Work work, int32_t world_size, Way way, int32_t num_chunks,
          bool aligned>
constexpr auto kernel_of() {
  if constexpr (work == Work::sending)
    return send_alone<world_size, num_chunks, aligned>;
  else if constexpr (work == Work::adding)
    return add_alone<world_size, num_chunks, aligned>;
  else
    return norm_rows<world_size, way, num_chunks, aligned>;
}

template <Work work, int32_t world_size, Way way, int32_t... num_chunks>
void launch_chunks(const Context& context, const NormRows& given,
                   const rows::RowShape& shape) {
  const int32_t num_rows = rows_kept<world_size, way>(given);
  if (num_rows == 0) return;
  bool aligned = rows::are_aligned(
      given.width,
      {given.residual, given.delta, given.weight, given.plain, given.codes});
  rows::launch_rows<num_chunks...>(
      kWhere, context, num_rows, shape.in_parts(norm::kParts<way>), aligned,
      given, [](auto chunks, auto is_fast) {
        return kernel_of<work, world_size, way, decltype(chunks)::value,
                         decltype(is_fast)::value>();
      });
}

template <Work work, int32_t first, int32_t... others>
void launch_ranks(const Context& context, const NormRows& given,
                  const rows::RowShape& shape) {
  if constexpr (sizeof...(others) > 0)
    if (context.peers->world_size() != first)
      return launch_ranks<work, others...>(context, given, shape);
  constexpr int32_t most = rows::kMaxReducedChunks;
  if constexpr (work == Work::norm)
    if (given.exchange.is_scattered)
      return launch_chunks<work, first, Way::scattered, 1, most>(context, given,
                                                                 shape);
  if constexpr (collectives::kMayHaveOwners<first> && work != Work::sending)
    if (given.exchange.has_owners)
      return launch_chunks<work, first, Way::by_owners, 1, most>(context, given,
                                                                 shape);
  if constexpr (work == Work::norm)
    if (rows::has_parts(context, shape, given.num_tokens))
      return launch_chunks<work, first, Way::in_parts, 1, most>(context, given,
                                                                shape);
  if constexpr (work != Work::adding)
    launch_chunks<work, first, Way::to_all, 1, most>(context, given, shape);
}

void send_before_all_receive(const Context& context, NormRows& given,
                             const rows::RowShape& shape) {
  launch_ranks<Work::sending, 2, 4, 8>(context, given, shape);
  context.peers->meet_on_gpu(kWhere);
  given.exchange.is_sent = true;
}

void add_before_all_receive(const Context& context, NormRows& given,
                            const rows::RowShape& shape) {
  launch_ranks<Work::adding, 2, 4, 8>(context, given, shape);
  context.peers->meet_on_gpu(kWhere);
  given.exchange.is_summed = true;
}

int32_t rows_of_exchange(const collectives::PeerRank& peers, bool is_scattered,
                         int32_t num_left) {
  const int32_t most = peers.max_exchange_rows();
  if (num_left <= most) return num_left;
  if (!is_scattered) return most;
  const int32_t world_size = peers.world_size();
  expect_range(kWhere, "rows per scattered exchange", 2 * world_size, INT32_MAX,
               most);
  const int32_t whole = std::min(most, num_left - world_size);
  return whole - whole % world_size;
}

void expect_codes_in_bound_memory(
    const collectives::PeerRank& peers,
    const glm_reduce_add_norm_quantise_args& args) {
  const int64_t num_rows = args.num_tokens;
  if (args.output.codes == nullptr) return;
  peers.expect_in_bound_memory(kWhere, "codes", args.output.codes,
                               num_rows * args.hidden_size);
  peers.expect_in_bound_memory(kWhere, "row_scale", args.output.row_scale,
                               num_rows * int64_t{sizeof(float)});
}

void reduce_rows(const Context& context,
                 const glm_reduce_add_norm_quantise_args& args) {
  const rows::RowShape shape = rows::shape_of(kWhere, args.hidden_size);
  const bool is_scattered = args.is_scattered != 0;
  const bool adds = args.delta != nullptr;
  if (is_scattered) expect_codes_in_bound_memory(*context.peers, args);
  const int32_t world_size = context.peers->world_size();
  int32_t begin = 0;
  while (begin < args.num_tokens) {
    const int32_t num_left = args.num_tokens - begin;
    NormRows given =
        rows_of(args, begin, is_scattered ? begin / world_size : begin,
                adds ? rows_of_exchange(*context.peers, is_scattered, num_left)
                     : num_left);
    begin += given.num_tokens;
    given.exchange = adds ? context.peers->exchange_of(
                                kWhere, {given.delta, given.num_tokens,
                                         given.width, is_scattered})
                          : context.peers->exchange_between_ranks(kWhere, true);
    const bool is_shared = context.peers->shares_gpu();
    if (adds && (is_shared || (is_scattered && !given.exchange.is_sent)))
      send_before_all_receive(context, given, shape);
    if (is_shared && given.exchange.has_owners && !is_scattered)
      add_before_all_receive(context, given, shape);
    launch_ranks<Work::norm, 2, 4, 8>(context, given, shape);
  }
}

}

void reduce_add_norm_quantise(const Context& context,
                              const glm_reduce_add_norm_quantise_args& args) {
  const int32_t world_size =
      context.peers == nullptr ? 1 : context.peers->world_size();
  expect_reduce_add_norm_quantise_shapes(args, world_size);
  const bool is_scattered = context.peers != nullptr && args.is_scattered != 0;
  if (is_scattered && args.num_tokens > 0)
    expect_range(kWhere, "scattered num_tokens", context.peers->world_size(),
                 INT32_MAX, args.num_tokens);
  expect_output(kWhere, args.output);
  const bool adds = args.num_tokens > 0 && args.delta != nullptr;
  if (context.peers != nullptr && !adds)
    context.peers->expect_none_reserved(kWhere);
  if (args.num_tokens == 0) return;
  expect_pointer(kWhere, "residual", args.residual);
  expect_pointer(kWhere, "weight", args.weight);
  if (context.peers != nullptr && (adds || is_scattered))
    return reduce_rows(context, args);
  const NormRows given = rows_of(args, 0, 0, args.num_tokens);
  const rows::RowShape shape = rows::shape_of(kWhere, args.hidden_size);
  if (rows::has_parts(context, shape, args.num_tokens))
    return launch_chunks<Work::norm, 1, Way::in_parts, 1, 2>(context, given,
                                                             shape);
  launch_chunks<Work::norm, 1, Way::to_all, 1, 2, 4, 8>(context, given, shape);
}

}
