#pragma once

#include <cstdint>

#include "glm/backend.h"

namespace glm::kernels {

void expect_matrix_shape(const char* where, const glm_matrix& matrix);
void expect_product_dtype(const char* where, const char* what, int32_t last,
                          int32_t dtype);
void expect_linear_shapes(const glm_linear_args& args);
void expect_logits_shapes(const glm_logits_args& args);

void expect_embed_shapes(const glm_embed_args& args);
void expect_embed_norm_concat_shapes(const glm_embed_norm_concat_args& args);
void expect_quantise_shapes(const glm_quantise_args& args);
void expect_swiglu_quantise_shapes(const glm_swiglu_quantise_args& args);
void expect_reduce_add_norm_quantise_shapes(
    const glm_reduce_add_norm_quantise_args& args, int32_t world_size);
void expect_sample_shapes(const glm_sample_args& args);

void expect_norm_rope_store_shapes(const glm_norm_rope_store_args& args);
void expect_attention_shapes(const glm_attention_args& args);
int64_t page_bytes(const glm_kv_cache& cache);

void expect_route_shapes(const glm_route_args& args);
void expect_expert_shapes(const glm_experts_args& args);

int64_t reduce_add_norm_quantise_scratch_bytes(
    const glm_workspace_shape& shape);
int64_t linear_scratch_bytes(const glm_workspace_shape& shape);
int64_t logits_scratch_bytes(const glm_workspace_shape& shape);
int64_t attention_scratch_bytes(const glm_workspace_shape& shape);
int64_t route_scratch_bytes(const glm_workspace_shape& shape);
int64_t experts_scratch_bytes(const glm_workspace_shape& shape);

}
