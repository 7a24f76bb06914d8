#include "native/kernels/blackwell/scratch.hpp"

#include <algorithm>

#include "native/collectives/peer/region.hpp"
#include "native/kernels/attention/context_splits.hpp"
#include "native/kernels/attention/decode_scratch.hpp"
#include "native/kernels/experts/scratch.hpp"
#include "native/kernels/logits/scratch.hpp"
#include "native/kernels/prefill/scratch.hpp"
#include "native/kernels/route/shared_plan.hpp"
#include "native/kernels/shapes/shapes.hpp"

namespace glm::kernels {
namespace {

constexpr int32_t kMostScratchRows = 8192;

int64_t decode_bytes(const glm_workspace_shape& shape) {
  decode::ScratchShape most = {};
  most.num_segments =
      std::min<int64_t>(shape.max_decode_rows, decode::kSegmentsOfLaunch);
  most.splits_of_context = num_splits(counted_blocks(shape.max_context)) + 1;
  most.num_heads = shape.num_heads;
  most.num_kv_heads = shape.num_kv_heads;
  most.head_dim = shape.head_dim;
  const bool has_pairs = shape.rows_per_sequence > 1;
  const int64_t for_pairs =
      has_pairs ? std::min(most.splits_of_context, decode::kMostSplitsOfPair)
                : 0;
  const int64_t open_slots = has_pairs ? 6 : 3;
  const int64_t num_slots =
      std::min(decode::kMostShares * (most.splits_of_context + for_pairs),
               decode::most_splits(most) + open_slots * decode::kMostShares) +
      decode::kMostShares;
  return decode::layout_of_slots(most, num_slots).bytes;
}

int64_t launch_bytes(const glm_workspace_shape& shape) {
  return mixture::ScratchLayout(
             {shape.hidden_size, shape.moe_intermediate_size, shape.top_k},
             GLM_DTYPE_BF16)
      .bytes;
}

int64_t prefill_expert_bytes(const glm_workspace_shape& shape) {
  int64_t bytes = 0;
  for (const int32_t dtype : {GLM_DTYPE_BF16, GLM_DTYPE_F8_E4M3})
    bytes =
        std::max(bytes, prefill::expert_layout(
                            dtype, int64_t{shape.max_step_tokens} * shape.top_k,
                            shape.num_local_experts, shape.hidden_size,
                            shape.moe_intermediate_size)
                            .bytes);
  return bytes;
}

int64_t blackwell_expert_bytes(const glm_workspace_shape& shape) {
  return blackwell::ExpertLayout(
             {GLM_DTYPE_BF16, shape.top_k, shape.num_local_experts,
              shape.hidden_size, shape.moe_intermediate_size},
             1)
      .bytes;
}

}

int64_t reduce_add_norm_quantise_scratch_bytes(
    const glm_workspace_shape& shape) {
  return collectives::region_bytes(
      collectives::region_shape(shape.world_size, shape.max_step_tokens,
                                shape.max_decode_rows),
      shape.hidden_size);
}

int64_t linear_scratch_bytes(const glm_workspace_shape&) {
  return std::max(blackwell::product_scratch_bytes(1), prefill::kKeptBytes);
}

int64_t logits_scratch_bytes(const glm_workspace_shape& shape) {
  return int64_t{shape.max_logit_rows} * gathered_row_bytes(shape.hidden_size) +
         blackwell::product_scratch_bytes(1);
}

int64_t attention_scratch_bytes(const glm_workspace_shape& shape) {
  return round_up(decode_bytes(shape), decode::kListAlignment) +
         2 * round_up(int64_t{shape.max_step_tokens} * 4,
                      decode::kListAlignment);
}

int64_t route_scratch_bytes(const glm_workspace_shape& shape) {
  int64_t packed =
      blackwell::router_scratch_bytes(routing::kMaxExperts, shape.hidden_size);
  if (shape.top_k <= 0 || shape.max_step_tokens <= routing::kMostClusterRows)
    return packed;
  int64_t rows = std::min(shape.max_step_tokens, kMostScratchRows);
  return std::max(packed, rows * routing::sums_row_bytes(routing::kMaxWarps));
}

int64_t experts_scratch_bytes(const glm_workspace_shape& shape) {
  if (shape.moe_intermediate_size <= 0 || shape.top_k <= 0) return 0;
  glm_workspace_shape without_shared = shape;
  without_shared.top_k = std::max(shape.top_k - 1, 1);
  return std::max(launch_bytes(shape), launch_bytes(without_shared)) +
         prefill_expert_bytes(shape) + blackwell_expert_bytes(shape);
}

}
