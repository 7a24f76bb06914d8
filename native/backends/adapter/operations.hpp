#pragma once

#include "device.hpp"

namespace glm::adapter {

void place_rows(glm_device& device, const glm_place_rows_args& args);
void place_vector(glm_device& device, const glm_place_vector_args& args);
void place_random(glm_device& device, const glm_place_random_args& args);
void rope_table(glm_device& device, const glm_rope_table_args& args);

void copy_pages(glm_device& device, const glm_copy_pages_args& args);
void save_pages(glm_device& device, const glm_transfer_pages_args& args);
void restore_pages(glm_device& device, const glm_transfer_pages_args& args);

void begin_step(glm_device& device, const glm_begin_step_args& args);
void embed(glm_device& device, const glm_embed_args& args);
void quantise(glm_device& device, const glm_quantise_args& args);
void swiglu_quantise(glm_device& device, const glm_swiglu_quantise_args& args);
void reduce_add_norm_quantise(glm_device& device,
                              const glm_reduce_add_norm_quantise_args& args);
void linear(glm_device& device, const glm_linear_args& args);
void logits(glm_device& device, const glm_logits_args& args);
void norm_rope_store(glm_device& device, const glm_norm_rope_store_args& args);
void attention(glm_device& device, const glm_attention_args& args);
void route(glm_device& device, const glm_route_args& args);
void experts(glm_device& device, const glm_experts_args& args);
void reduce(glm_device& device, const char* where, float* data, int64_t count);
void all_gather(glm_device& device, const glm_all_gather_args& args);
void all_to_all(glm_device& device, const glm_all_to_all_args& args);
void count_tokens(glm_device& device, const glm_count_tokens_args& args);
void accept(glm_device& device, const glm_accept_args& args);
void sample(glm_device& device, const glm_sample_args& args);
void begin_drafts(glm_device& device, const glm_begin_drafts_args& args);
void embed_norm_concat(glm_device& device,
                       const glm_embed_norm_concat_args& args);
void keep_drafts(glm_device& device, const glm_keep_drafts_args& args);

void linear_result(glm_device& device, const char* where, int64_t tokens,
                   const glm_matrix& matrix, const glm_activation& input,
                   futhark_f32_2d** result);

int64_t matrix_bytes(const glm_matrix& matrix);
int64_t page_bytes(const glm_kv_cache& cache);

void expect_matrix(const char* where, const char* what,
                   const glm_matrix* matrix, int32_t role);
void expect_plain(const char* where, const char* what,
                  const glm_matrix& matrix);
void expect_cache(const char* where, const glm_kv_cache* cache);

}
