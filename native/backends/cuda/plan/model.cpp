#include "native/backends/cuda/plan/plan.hpp"
#include "native/base/failure.hpp"
#include "native/kernels/shapes/shapes.hpp"

namespace glm::cuda {
namespace {

using Shape = glm_model_shape;

void check_linear(const glm_matrix* matrix) {
  if (matrix == nullptr) return;
  glm_linear_args args = {};
  args.matrix = matrix;
  kernels::expect_linear_shapes(args);
}

void check_rows(const glm_matrix& table) {
  glm_embed_args args = {};
  args.id_stride = 1;
  args.table = &table;
  kernels::expect_embed_shapes(args);
}

void check_residual(const Shape& shape) {
  check_rows(*shape.embedding);
  glm_reduce_add_norm_quantise_args args = {};
  args.hidden_size = shape.embedding->columns;
  kernels::expect_reduce_add_norm_quantise_shapes(args, shape.world_size);
}

void check_attention(const Shape& shape) {
  kernels::page_bytes(*shape.cache);
  glm_norm_rope_store_args heads = {};
  heads.num_heads = shape.num_heads;
  heads.rotary_dim = shape.rotary_dim;
  heads.cache = shape.cache;
  kernels::expect_norm_rope_store_shapes(heads);
  glm_attention_args attention = {};
  attention.num_heads = shape.num_heads;
  attention.cache = shape.cache;
  kernels::expect_attention_shapes(attention);
}

void check_codes_for(const glm_matrix& matrix) {
  if (matrix.dtype != GLM_DTYPE_F8_E4M3) return;
  glm_quantise_args args = {};
  args.width = matrix.columns;
  kernels::expect_quantise_shapes(args);
}

void check_attended(const Shape& shape) {
  check_rows({GLM_DTYPE_BF16, GLM_MATRIX_TABLE, INT32_MAX,
              shape.output->columns, nullptr, nullptr, nullptr});
  check_codes_for(*shape.output);
}

void check_joint(const Shape& shape) {
  if (shape.joint == nullptr) return;
  glm_embed_norm_concat_args args = {};
  args.hidden_size = shape.embedding->columns;
  args.table = shape.embedding;
  kernels::expect_embed_norm_concat_shapes(args);
  check_codes_for(*shape.joint);
}

void check_gated(const Shape& shape) {
  if (shape.down == nullptr || shape.merges_shared_expert != 0) return;
  glm_swiglu_quantise_args args = {};
  args.width = shape.down->columns;
  kernels::expect_swiglu_quantise_shapes(args);
}

void check_route(const Shape& shape) {
  if (shape.router == nullptr) return;
  glm_route_args args = {};
  args.num_tokens = INT32_MAX;
  args.top_k = shape.top_k;
  args.router = shape.router;
  args.num_shared_experts = shape.merges_shared_expert;
  kernels::expect_route_shapes(args);
}

void check_experts(const Shape& shape) {
  if (shape.router == nullptr) return;
  glm_experts_args args = {};
  args.top_k = shape.top_k + shape.merges_shared_expert;
  args.num_local_experts = shape.num_local_experts;
  args.gate_up = shape.experts_gate_up;
  args.down = shape.experts_down;
  args.shared_expert_id = -1;
  if (shape.merges_shared_expert != 0) {
    args.shared_expert_id = shape.router->rows;
    args.shared_gate_up = shape.gate_up;
    args.shared_down = shape.down;
  }
  kernels::expect_expert_shapes(args);
}

void check_head(const Shape& shape) {
  glm_logits_args head = {};
  head.head = shape.head;
  kernels::expect_logits_shapes(head);
  glm_sample_args sample = {};
  sample.vocab_size = shape.vocab_size;
  kernels::expect_sample_shapes(sample);
}

void check_matrices(const Shape& shape) {
  for (const glm_matrix* matrix :
       {shape.embedding, shape.head, shape.qkv, shape.output, shape.gate_up,
        shape.down, shape.router, shape.experts_gate_up, shape.experts_down,
        shape.joint})
    if (matrix != nullptr) expect_placeable(*matrix);
  for (const glm_matrix* matrix :
       {shape.qkv, shape.output, shape.gate_up, shape.down, shape.joint})
    check_linear(matrix);
}

}

void check_model(const glm_model_shape& shape) {
  try {
    check_residual(shape);
    check_attention(shape);
    check_attended(shape);
    check_gated(shape);
    check_route(shape);
    check_experts(shape);
    check_head(shape);
    check_joint(shape);
    check_matrices(shape);
  } catch (const Failure& failure) {
    throw Failure(GLM_NOT_SUPPORTED, failure.what());
  }
}

}
