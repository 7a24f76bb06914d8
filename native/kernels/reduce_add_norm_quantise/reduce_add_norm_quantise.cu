#include <algorithm>
#include <string>

#include "native/collectives/peer/peer_rank.hpp"
#include "native/collectives/peer/send_receive.hpp"
#include "native/kernels/quantise/codes_of_row.hpp"
#include "native/kernels/reduce_add_norm_quantise/reduce_add_norm_quantise.hpp"
#include "native/kernels/rows/checks.hpp"
#include "native/kernels/rows/prefetch.hpp"
#include "native/ptx/dependent_launch.hpp"

namespace glm::kernels {
namespace {

constexpr char kWhere[] = "reduce_add_norm_quantise";
constexpr int32_t kFewRows = 16;
constexpr int32_t kRowsUnderWay = 2;
constexpr int32_t kMostReducedChunks = 2;
constexpr int32_t kMostReducedWidth =
    kMostReducedChunks * rows::kMaxThreads * rows::kChunkElements;

using collectives::Exchange;

struct NormRows {
  int32_t num_tokens;
  int32_t width;
  float epsilon;
  __nv_bfloat16* residual;
  const __nv_bfloat16* delta;
  const float* weight;
  __nv_bfloat16* plain;
  uint8_t* codes;
  float* row_scale;
  Exchange exchange;
};

using rows::Bf16Chunk;
using rows::FloatChunk;

__device__ void add_to(FloatChunk& sum, const FloatChunk& added) {
#pragma unroll
  for (int32_t i = 0; i < rows::kChunkElements; ++i)
    sum.values[i] += added.values[i];
}

__device__ int32_t exchanged_chunk(const Exchange& exchange, int32_t row,
                                   int32_t begin) {
  return row * exchange.row_chunks + begin / rows::kChunkElements;
}

template <bool aligned>
__device__ Bf16Chunk load_delta(const NormRows& args, int32_t row,
                                int32_t begin) {
  return rows::load<Bf16Chunk, __nv_bfloat16, aligned>(
      args.delta + int64_t{row} * args.width, begin, args.width);
}

template <int32_t world_size, int32_t num_chunks, bool aligned>
__device__ void send_rows(const NormRows& args, int32_t first, int32_t count) {
#pragma unroll 1
  for (int32_t row = first; row < args.num_tokens && count > 0;
       row += gridDim.x, --count) {
#pragma unroll
    for (int32_t i = 0; i < num_chunks; ++i) {
      const int32_t begin = rows::chunk_begin(i);
      if (begin >= args.width) continue;
      const Bf16Chunk delta = load_delta<aligned>(args, row, begin);
      collectives::send<world_size>(
          args.exchange, exchanged_chunk(args.exchange, row, begin),
          collectives::with_canonical_nans(rows::same_bits<uint4>(delta)));
    }
  }
}

template <int32_t world_size, int32_t num_chunks, bool aligned>
__device__ void send_before(const NormRows& args, int32_t row) {
  const int32_t begun = kRowsUnderWay * static_cast<int32_t>(gridDim.x);
  const bool is_first = row == static_cast<int32_t>(blockIdx.x);
  send_rows<world_size, num_chunks, aligned>(args, is_first ? row : row + begun,
                                             is_first ? kRowsUnderWay + 1 : 1);
}

template <int32_t world_size, bool aligned>
__device__ void prefetch_next_row(const NormRows& args, int32_t row) {
  rows::prefetch_next<aligned>(args.residual, row, args.num_tokens, args.width);
  rows::prefetch_next<aligned>(args.delta, row, args.num_tokens, args.width);
  if (world_size == 1 || !args.exchange.is_sent) return;
#pragma unroll 1
  for (int32_t i = 0; i < world_size - 1; ++i)
    rows::prefetch_next<aligned>(
        reinterpret_cast<const __nv_bfloat16*>(
            collectives::place_of(args.exchange, i, 0)),
        row, args.num_tokens, args.width);
}

template <int32_t world_size>
__device__ FloatChunk sum_of(const Exchange& exchange, const Bf16Chunk& delta,
                             const collectives::Parts<world_size>& parts) {
  const uint4 own =
      collectives::with_canonical_nans(rows::same_bits<uint4>(delta));
  auto of_rank = [&](int32_t rank) {
    return rows::widen(rows::same_bits<Bf16Chunk>(
        collectives::part_of(exchange, rank, own, parts)));
  };
  FloatChunk sum = of_rank(0);
#pragma unroll
  for (int32_t rank = 1; rank < world_size; ++rank) add_to(sum, of_rank(rank));
  return sum;
}

template <int32_t num_chunks, bool aligned>
__device__ void add_delta(const NormRows& args, int32_t row_index,
                          int64_t offset, Bf16Chunk (&row)[num_chunks]) {
  Bf16Chunk delta[num_chunks];
#pragma unroll
  for (int32_t i = 0; i < num_chunks; ++i)
    row[i] = rows::load<Bf16Chunk, __nv_bfloat16, aligned>(
        args.residual + offset, rows::chunk_begin(i), args.width);
  if (args.delta == nullptr) return;
#pragma unroll
  for (int32_t i = 0; i < num_chunks; ++i)
    delta[i] = load_delta<aligned>(args, row_index, rows::chunk_begin(i));
#pragma unroll
  for (int32_t i = 0; i < num_chunks; ++i) {
    FloatChunk sum = rows::widen(row[i]);
    add_to(sum, rows::widen(delta[i]));
    row[i] = rows::narrow(sum);
    rows::store<Bf16Chunk, __nv_bfloat16, aligned>(
        args.residual + offset, rows::chunk_begin(i), args.width, row[i]);
  }
}

template <int32_t world_size, int32_t num_chunks, bool aligned>
__device__ void add_parts(const NormRows& args, int32_t row_index,
                          int64_t offset, Bf16Chunk (&row)[num_chunks]) {
#pragma unroll
  for (int32_t i = 0; i < num_chunks; ++i) {
    const int32_t begin = rows::chunk_begin(i);
    row[i] = {};
    if (begin >= args.width) continue;
    const int32_t chunk = exchanged_chunk(args.exchange, row_index, begin);
    auto parts = collectives::look<world_size>(args.exchange, chunk);
    row[i] = rows::load<Bf16Chunk, __nv_bfloat16, aligned>(
        args.residual + offset, begin, args.width);
    const Bf16Chunk delta = load_delta<aligned>(args, row_index, begin);
    if (i == 0) prefetch_next_row<world_size, aligned>(args, row_index);
    collectives::receive(args.exchange, chunk, parts);
    FloatChunk sum = rows::widen(row[i]);
    add_to(sum, sum_of(args.exchange, delta, parts));
    row[i] = rows::narrow(sum);
    rows::store<Bf16Chunk, __nv_bfloat16, aligned>(args.residual + offset,
                                                   begin, args.width, row[i]);
  }
}

__device__ void measure(const Bf16Chunk& chunk, const FloatChunk& weight,
                        rows::RowMeasure& own) {
  FloatChunk values = rows::widen(chunk);
#pragma unroll
  for (int32_t i = 0; i < rows::kChunkElements; ++i) {
    float value = values.values[i];
    own.square_sum = fmaf(value, value, own.square_sum);
    own.largest_bits =
        max(own.largest_bits, rows::magnitude_bits(value * weight.values[i]));
  }
}

__device__ FloatChunk normed(const Bf16Chunk& chunk, const FloatChunk& weight,
                             float factor) {
  FloatChunk values = rows::widen(chunk);
#pragma unroll
  for (int32_t i = 0; i < rows::kChunkElements; ++i)
    values.values[i] = (values.values[i] * weight.values[i]) * factor;
  return values;
}

template <int32_t world_size, int32_t num_chunks, bool aligned>
__device__ void norm_row(const NormRows& args, int32_t row,
                         const FloatChunk (&weight)[num_chunks],
                         rows::MeasureBuffer& buffer, int32_t parity) {
  int64_t offset = int64_t{row} * args.width;
  Bf16Chunk chunks[num_chunks];
  if constexpr (world_size == 1)
    add_delta<num_chunks, aligned>(args, row, offset, chunks);
  else
    add_parts<world_size, num_chunks, aligned>(args, row, offset, chunks);
  rows::RowMeasure own = {0.0f, 0u};
#pragma unroll
  for (int32_t i = 0; i < num_chunks; ++i) measure(chunks[i], weight[i], own);
  rows::RowMeasure whole = rows::block_measure(own, buffer, parity);
  float factor =
      rsqrtf(whole.square_sum / static_cast<float>(args.width) + args.epsilon);
  auto values_of = [&](int32_t i) {
    return normed(chunks[i], weight[i], factor);
  };
  if (args.plain != nullptr)
#pragma unroll
    for (int32_t i = 0; i < num_chunks; ++i)
      rows::store<Bf16Chunk, __nv_bfloat16, aligned>(
          args.plain + offset, rows::chunk_begin(i), args.width,
          rows::narrow(values_of(i)));
  if (args.codes == nullptr) return;
  float largest = __uint_as_float(whole.largest_bits) * factor;
  write_codes<num_chunks, aligned>(values_of, largest, args.width,
                                   args.codes + offset, args.row_scale + row);
}

template <int32_t world_size, int32_t num_chunks, bool aligned>
__global__ void __launch_bounds__(rows::kMaxThreads)
    send_alone(__grid_constant__ const NormRows args) {
  ptx::wait_for_predecessor();
  send_rows<world_size, num_chunks, aligned>(args, blockIdx.x, args.num_tokens);
}

template <int32_t world_size, int32_t num_chunks, bool aligned>
__global__ void __launch_bounds__(rows::kMaxThreads)
    norm_rows(__grid_constant__ const NormRows args) {
  __shared__ rows::MeasureBuffer buffer;
  const bool has_few = args.num_tokens <= kFewRows;
  if (has_few) ptx::let_successor_start();
  FloatChunk weight[num_chunks];
#pragma unroll
  for (int32_t i = 0; i < num_chunks; ++i)
    weight[i] = rows::load_floats<aligned>(args.weight, rows::chunk_begin(i),
                                           args.width);
  const int32_t first = blockIdx.x;
  int32_t parity = 0;
#pragma unroll 1
  for (int32_t row = first; row < args.num_tokens; row += gridDim.x) {
    if (row == first) {
      ptx::wait_for_predecessor();
      if (!has_few) ptx::let_successor_start();
    }
    if constexpr (world_size > 1)
      if (!args.exchange.is_sent)
        send_before<world_size, num_chunks, aligned>(args, row);
    if constexpr (world_size == 1)
      prefetch_next_row<world_size, aligned>(args, row);
    norm_row<world_size, num_chunks, aligned>(args, row, weight, buffer,
                                              parity);
    parity ^= 1;
  }
}

NormRows rows_of(const glm_reduce_add_norm_quantise_args& args, int32_t begin,
                 int32_t num_rows) {
  const int64_t offset = int64_t{begin} * args.hidden_size;
  auto from = [&](auto* pointer) {
    return pointer == nullptr ? nullptr : pointer + offset;
  };
  const glm_activation_output& output = args.output;
  return {num_rows,
          args.hidden_size,
          args.epsilon,
          from(static_cast<__nv_bfloat16*>(args.residual)),
          from(static_cast<const __nv_bfloat16*>(args.delta)),
          args.weight,
          from(static_cast<__nv_bfloat16*>(output.plain)),
          from(output.codes),
          output.row_scale == nullptr ? nullptr : output.row_scale + begin,
          {}};
}

enum class Work { norm, sending };

template <Work work, int32_t world_size, int32_t... num_chunks>
void launch_chunks(const Context& context, const NormRows& given,
                   const rows::RowShape& shape) {
  bool aligned = rows::are_aligned(
      given.width,
      {given.residual, given.delta, given.weight, given.plain, given.codes});
  rows::with_chunks<num_chunks...>(
      shape.num_chunks, aligned, [&](auto chunks, auto is_fast) {
        constexpr int32_t count = decltype(chunks)::value;
        constexpr bool is_aligned = decltype(is_fast)::value;
        auto kernel = norm_rows<world_size, count, is_aligned>;
        if constexpr (work == Work::sending)
          kernel = send_alone<world_size, count, is_aligned>;
        rows::launch_rows(kWhere, context, given.num_tokens, shape, kernel,
                          given);
      });
}

template <Work work, int32_t first, int32_t... others>
void launch_ranks(const Context& context, const NormRows& given,
                  const rows::RowShape& shape) {
  if constexpr (sizeof...(others) > 0)
    if (context.peers->world_size() != first)
      return launch_ranks<work, others...>(context, given, shape);
  launch_chunks<work, first, 1, kMostReducedChunks>(context, given, shape);
}

void send_before_all_receive(const Context& context, NormRows& given,
                             const rows::RowShape& shape) {
  launch_ranks<Work::sending, 2, 4, 8>(context, given, shape);
  context.peers->meet_on_gpu(kWhere);
  given.exchange.is_sent = true;
}

void reduce_rows(const Context& context,
                 const glm_reduce_add_norm_quantise_args& args) {
  const rows::RowShape shape = rows::shape_of(kWhere, args.hidden_size);
  if (shape.num_chunks > kMostReducedChunks)
    throw Failure(GLM_NOT_SUPPORTED,
                  std::string(kWhere) +
                      ": hidden_size over several ranks: expected at most " +
                      std::to_string(kMostReducedWidth) + ", got " +
                      std::to_string(args.hidden_size));
  int32_t begin = 0;
  while (begin < args.num_tokens) {
    const int32_t most = context.peers->max_exchange_rows();
    NormRows given =
        rows_of(args, begin, std::min(most, args.num_tokens - begin));
    begin += given.num_tokens;
    given.exchange = context.peers->exchange_of(
        kWhere, {given.delta, given.num_tokens, given.width});
    if (context.peers->shares_gpu())
      send_before_all_receive(context, given, shape);
    launch_ranks<Work::norm, 2, 4, 8>(context, given, shape);
  }
}

}

void reduce_add_norm_quantise(const Context& context,
                              const glm_reduce_add_norm_quantise_args& args) {
  expect_range(kWhere, "num_tokens", 0, INT32_MAX, args.num_tokens);
  expect_range(kWhere, "hidden_size", 1, INT32_MAX, args.hidden_size);
  expect_output(kWhere, args.output);
  const bool adds = args.num_tokens > 0 && args.delta != nullptr;
  if (context.peers != nullptr && !adds)
    context.peers->expect_none_reserved(kWhere);
  if (args.num_tokens == 0) return;
  expect_pointer(kWhere, "residual", args.residual);
  expect_pointer(kWhere, "weight", args.weight);
  if (context.peers != nullptr && adds) return reduce_rows(context, args);
  launch_chunks<Work::norm, 1, 1, 2, 4, 8>(
      context, rows_of(args, 0, args.num_tokens),
      rows::shape_of(kWhere, args.hidden_size));
}

int64_t reduce_add_norm_quantise_scratch_bytes(
    const glm_workspace_shape& shape) {
  return collectives::region_bytes(
      collectives::region_shape(shape.world_size, shape.max_step_tokens,
                                shape.max_sequences),
      shape.hidden_size);
}

}
