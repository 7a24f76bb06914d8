#include "native/kernels/experts/experts.hpp"

#include <algorithm>

#include "native/base/failure.hpp"
#include "native/collectives/peer/peer_rank.hpp"
#include "native/kernels/blackwell/operations.hpp"
#include "native/kernels/blackwell/stored_rows.hpp"
#include "native/kernels/experts/checks.hpp"
#include "native/kernels/experts/parameters.hpp"
#include "native/kernels/experts/scratch.hpp"
#include "native/kernels/prefill/prefill.hpp"

namespace glm::kernels {
namespace {

using mixture::ExpertsParameters;
using mixture::ScratchLayout;
using mixture::ScratchShape;

ScratchShape shape_of(const glm_experts_args& args) {
  return {args.gate_up->columns, args.down->columns, args.top_k};
}

mixture::StreamedMatrix streamed(const glm_matrix& matrix, int64_t stride,
                                 int64_t scale_stride) {
  bool is_scaled = matrix.dtype == GLM_DTYPE_F8_E4M3;
  return {static_cast<const uint8_t*>(matrix.data),
          is_scaled ? matrix.row_scale : nullptr,
          stride,
          scale_stride,
          num_packed_rows(matrix.role, matrix.rows),
          0,
          num_column_tiles(matrix.dtype, matrix.columns)};
}

void set_scratch(ExpertsParameters& p, const ScratchLayout& layout,
                 uint8_t* scratch, int32_t row_bytes) {
  p.hidden_stride = layout.hidden_stride;
  p.partial_stride = layout.partial_stride;
  p.control = reinterpret_cast<mixture::Control*>(scratch);
  p.hidden = reinterpret_cast<float*>(scratch + layout.hidden);
  p.codes = scratch + layout.codes;
  p.code_scale = reinterpret_cast<float*>(scratch + layout.code_scale);
  p.partial = reinterpret_cast<float*>(scratch + layout.partial);
  p.discards_rows =
      p.num_tokens >= mixture::kFewestDiscardTokens &&
      p.hidden_stride % mixture::kLineValues == 0 &&
      p.partial_stride % mixture::kLineValues == 0 &&
      reinterpret_cast<uintptr_t>(scratch) % mixture::kRegionAlignment == 0;
  p.encoded = {p.codes, layout.code_stride, row_bytes, mixture::row_factor(1)};
}

void set_input(const Context& context, ExpertsParameters& p,
               const ScratchLayout& layout, const uint8_t* rows,
               int32_t row_bytes) {
  p.input = {rows, row_bytes, row_bytes, mixture::row_factor(p.top_k)};
  bool is_aligned = row_bytes % kChunkBytes == 0 &&
                    reinterpret_cast<uintptr_t>(rows) % kChunkBytes == 0;
  if (is_aligned) return;
  uint8_t* padded = reinterpret_cast<uint8_t*>(p.control) + layout.padded_input;
  int32_t padded_bytes = static_cast<int32_t>(layout.input_stride);
  mixture::launch_pad_rows(
      context.stream, {rows, padded, p.num_tokens, row_bytes, padded_bytes});
  p.input = {padded, padded_bytes, padded_bytes, mixture::row_factor(p.top_k)};
}

ExpertsParameters parameters_of(const glm_experts_args& args, int32_t begin,
                                int32_t count) {
  ExpertsParameters p = {};
  int64_t first = int64_t{begin} * args.top_k;
  int64_t element = int64_t{begin} * args.gate_up->columns;
  const __nv_bfloat16* initial =
      static_cast<const __nv_bfloat16*>(args.initial);
  p.num_tokens = count;
  p.top_k = args.top_k;
  p.local = local_experts(args);
  p.num_experts = p.local.count();
  p.hidden_size = args.gate_up->columns;
  p.expert_ids = args.expert_ids + first;
  p.expert_weights = args.expert_weights + first;
  p.routed = {
      streamed(*args.gate_up, args.gate_up_stride, args.gate_up_scale_stride),
      streamed(*args.down, args.down_stride, args.down_scale_stride),
      args.down->columns};
  if (has_shared_expert(args))
    p.shared = {streamed(*args.shared_gate_up, 0, 0),
                streamed(*args.shared_down, 0, 0), args.shared_down->columns};
  p.initial = initial == nullptr ? nullptr : initial + element;
  p.output = static_cast<__nv_bfloat16*>(args.output) + element;
  if (args.gate_up->dtype == GLM_DTYPE_F8_E4M3)
    p.input_scale = args.input.row_scale + begin;
  return p;
}

void run_rows(const Context& context, const glm_experts_args& args,
              const ScratchLayout& layout, int32_t begin, int32_t count) {
  int32_t dtype = args.gate_up->dtype;
  ExpertsParameters p = parameters_of(args, begin, count);
  int32_t element = dtype == GLM_DTYPE_F8_E4M3 ? 1 : 2;
  const uint8_t* input = element == 1
                             ? args.input.codes
                             : static_cast<const uint8_t*>(args.input.plain);
  set_scratch(p, layout, static_cast<uint8_t*>(context.scratch.data),
              static_cast<int32_t>(layout.code_stride));
  input += int64_t{begin} * p.hidden_size * element;
  set_input(context, p, layout, input, p.hidden_size * element);
  p.peers = collectives::reserve_exchange(
      context.peers, mixture::kExperts, args.part_of_sum,
      {args.output, args.num_tokens, p.hidden_size});
  mixture::launch_experts(context.stream, context.num_multiprocessors, dtype,
                          p);
}

int32_t rows_of_launch(const glm_experts_args& args) {
  return mixture::tokens_per_launch(args.top_k);
}

void run_launches(const Context& context, const glm_experts_args& args,
                  const ScratchLayout& layout) {
  int32_t step = rows_of_launch(args);
  for (int32_t begin = 0; begin < args.num_tokens; begin += step)
    run_rows(context, args, layout, begin,
             std::min(step, args.num_tokens - begin));
}

}

void experts(const Context& context, const glm_experts_args& args) {
  mixture::expect_experts(args);
  if (args.num_tokens == 0) return;
  mixture::expect_memory(args);
  if (blackwell::multiplies(context, args.gate_up->dtype))
    return blackwell::experts(context, args);
  ScratchLayout layout(shape_of(args), args.gate_up->dtype);
  expect_range(mixture::kExperts, "scratch bytes", layout.bytes, INT64_MAX,
               context.scratch.bytes);
  if (args.num_tokens <= rows_of_launch(args))
    return run_launches(context, args, layout);
  Context rest = context;
  rest.scratch = {static_cast<uint8_t*>(context.scratch.data) + layout.bytes,
                  context.scratch.bytes - layout.bytes};
  prefill_experts(rest, args);
}

}
