#ifndef GLM_BACKEND_H
#define GLM_BACKEND_H

#include <stddef.h>
#include <stdint.h>

#include "status.h"

#define GLM_BACKEND_ABI_VERSION 19
#define GLM_MAX_LOGPROBS 20
#define GLM_MAX_GATHERED 5
#define GLM_TOKEN_IN_PROMPT 0x80000000u

enum { GLM_DTYPE_F32 = 0, GLM_DTYPE_BF16 = 1, GLM_DTYPE_F8_E4M3 = 2 };

enum { GLM_MATRIX_LINEAR = 0, GLM_MATRIX_GATE_UP = 1, GLM_MATRIX_TABLE = 2 };

enum { GLM_MEMORY_OWN = 0, GLM_MEMORY_SHARED = 1 };

enum {
  GLM_NO_PART_OF_SUM = 0,
  GLM_PART_OF_SUM = 1,
  GLM_PART_OF_SCATTERED_SUM = 2
};

typedef struct glm_group glm_group;
typedef struct glm_device glm_device;

typedef struct glm_group_options {
  uint32_t struct_size;
  int32_t world_size;
  const int32_t* devices;
} glm_group_options;

typedef struct glm_device_options {
  uint32_t struct_size;
  int32_t rank;
  int32_t world_size;
  int32_t num_threads;
  glm_group* group;
} glm_device_options;

typedef struct glm_device_info {
  uint32_t struct_size;
  int32_t activation_dtype;
  int32_t default_kv_dtype;
  int32_t supports_graphs;
  int64_t memory_total_bytes;
  int64_t memory_free_bytes;
  int32_t page_size_multiple;
  int32_t is_asynchronous;
  int32_t merges_shared_expert;
  int32_t has_one_attention;
  int32_t fewest_scattered_rows;
  char name[128];
} glm_device_info;

typedef struct glm_matrix {
  int32_t dtype;
  int32_t role;
  int32_t rows;
  int32_t columns;
  void* data;
  float* row_scale;
  float* bias;
} glm_matrix;

typedef struct glm_place_rows_args {
  const glm_matrix* matrix;
  int32_t row_begin;
  int32_t num_rows;
  const void* source;
  int64_t source_row_stride;
  const void* scale_source;
  int32_t scale_dtype;
  const void* bias_source;
  int32_t bias_dtype;
} glm_place_rows_args;

typedef struct glm_place_vector_args {
  const void* source;
  int32_t source_dtype;
  int32_t count;
  float* destination;
} glm_place_vector_args;

typedef struct glm_place_random_args {
  const glm_matrix* matrix;
  uint64_t seed;
  float standard_deviation;
} glm_place_random_args;

typedef struct glm_rope_table_args {
  double theta;
  int32_t rotary_dim;
  int32_t num_positions;
  float* cosine;
  float* sine;
} glm_rope_table_args;

typedef struct glm_kv_cache {
  int32_t dtype;
  int32_t num_layers;
  int32_t num_pages;
  int32_t page_size;
  int32_t num_kv_heads;
  int32_t head_dim;
  void* data;
  const float* key_scale;
  const float* value_scale;
} glm_kv_cache;

typedef struct glm_copy_pages_args {
  const glm_kv_cache* cache;
  int32_t num_pages;
  const int32_t* source_pages;
  const int32_t* destination_pages;
} glm_copy_pages_args;

typedef struct glm_transfer_pages_args {
  const glm_kv_cache* cache;
  int32_t num_pages;
  const int32_t* pages;
  void* host_data;
} glm_transfer_pages_args;

typedef struct glm_activation {
  const void* plain;
  const uint8_t* codes;
  const float* row_scale;
} glm_activation;

typedef struct glm_activation_output {
  void* plain;
  uint8_t* codes;
  float* row_scale;
} glm_activation_output;

typedef struct glm_sequence_state {
  int32_t length;
  int32_t last_id;
  int32_t num_accepted;
  int32_t draft_id;
} glm_sequence_state;

typedef struct glm_begin_step_args {
  int32_t num_rows;
  int32_t num_table_rows;
  int32_t page_size;
  int32_t page_table_stride;
  const int32_t* page_table;
  const int32_t* source_rows;
  const int32_t* table_row;
  const int32_t* row_offset;
  const int32_t* position_limit;
  const glm_sequence_state* states;
  const int32_t* continuation;
  int32_t continuation_stride;
  int32_t* token_ids;
  int32_t* positions;
  int32_t* slots;
  int32_t* context_length;
  int32_t* position;
} glm_begin_step_args;

typedef struct glm_embed_args {
  int32_t num_tokens;
  int32_t id_stride;
  const int32_t* token_ids;
  const glm_matrix* table;
  void* residual;
} glm_embed_args;

typedef struct glm_quantise_args {
  int32_t num_tokens;
  int32_t width;
  const void* input;
  uint8_t* codes;
  float* row_scale;
} glm_quantise_args;

typedef struct glm_swiglu_quantise_args {
  int32_t num_tokens;
  int32_t width;
  const void* gate_up;
  glm_activation_output output;
} glm_swiglu_quantise_args;

typedef struct glm_reduce_add_norm_quantise_args {
  int32_t num_tokens;
  int32_t hidden_size;
  float epsilon;
  void* residual;
  void* delta;
  const float* weight;
  glm_activation_output output;
  int32_t is_scattered;
} glm_reduce_add_norm_quantise_args;

typedef struct glm_linear_args {
  int32_t num_tokens;
  const glm_matrix* matrix;
  glm_activation input;
  void* output;
  int32_t part_of_sum;
} glm_linear_args;

typedef struct glm_norm_rope_store_args {
  int32_t num_tokens;
  int32_t num_heads;
  int32_t rotary_dim;
  int32_t layer;
  float epsilon;
  const float* query_norm;
  const float* key_norm;
  const float* cosine;
  const float* sine;
  const int32_t* positions;
  const int32_t* slots;
  const void* qkv;
  void* query;
  const glm_kv_cache* cache;
} glm_norm_rope_store_args;

typedef struct glm_segments {
  int32_t num_segments;
  int32_t num_decode_segments;
  const int32_t* query_begin;
  const int32_t* context_length;
  const int32_t* table_row;
  const int32_t* page_table;
  int32_t page_table_stride;
  int32_t num_table_rows;
  int32_t rows_per_sequence;
} glm_segments;

typedef struct glm_attention_args {
  int32_t num_tokens;
  glm_segments segments;
  int32_t num_heads;
  int32_t layer;
  float scale;
  const void* query;
  const glm_kv_cache* cache;
  void* output;
} glm_attention_args;

typedef struct glm_route_args {
  int32_t num_tokens;
  int32_t top_k;
  int32_t normalise;
  float scaling_factor;
  const void* input;
  const glm_matrix* router;
  const float* selection_bias;
  int32_t* expert_ids;
  float* expert_weights;
  int32_t num_shared_experts;
} glm_route_args;

typedef struct glm_experts_args {
  int32_t num_tokens;
  int32_t top_k;
  int32_t expert_begin;
  int32_t num_local_experts;
  int32_t shared_expert_id;
  const glm_matrix* gate_up;
  const glm_matrix* down;
  int64_t gate_up_stride;
  int64_t gate_up_scale_stride;
  int64_t down_stride;
  int64_t down_scale_stride;
  const glm_matrix* shared_gate_up;
  const glm_matrix* shared_down;
  glm_activation input;
  const int32_t* expert_ids;
  const float* expert_weights;
  const void* initial;
  void* output;
  int32_t part_of_sum;
} glm_experts_args;

typedef struct glm_gathered {
  int64_t row_bytes;
  const void* input;
  void* output;
} glm_gathered;

typedef struct glm_all_gather_args {
  int64_t num_rows;
  int32_t num_arrays;
  glm_gathered arrays[GLM_MAX_GATHERED];
} glm_all_gather_args;

typedef struct glm_all_to_all_args {
  int64_t num_rows;
  int64_t row_bytes;
  const void* input;
  void* output;
} glm_all_to_all_args;

typedef struct glm_logits_args {
  int32_t num_rows;
  const int32_t* row_index;
  const void* input;
  const glm_matrix* head;
  float* output;
} glm_logits_args;

typedef struct glm_count_tokens_args {
  uint32_t* counts;
  int32_t vocab_size;
  int32_t count_row;
  int32_t num_tokens;
  const int32_t* token_ids;
  int32_t from_prompt;
  int32_t reset;
} glm_count_tokens_args;

typedef struct glm_accept_args {
  int32_t num_rows;
  int32_t vocab_size;
  int32_t num_table_rows;
  float acceptance_rate;
  const int32_t* row_offset;
  const int32_t* input_ids;
  int32_t* sampled_ids;
  const uint64_t* seed;
  const int32_t* position;
  const int32_t* state_row;
  const int32_t* count_row;
  uint32_t* counts;
  glm_sequence_state* states;
} glm_accept_args;

typedef struct glm_begin_drafts_args {
  int32_t num_tokens;
  int32_t num_sample_rows;
  int32_t num_drafts;
  int32_t num_table_rows;
  const int32_t* next_ids;
  const int32_t* sampled_ids;
  const int32_t* positions;
  const int32_t* logit_rows;
  const int32_t* state_row;
  const int32_t* draft_rows;
  const glm_sequence_state* states;
  int32_t* token_ids;
  int32_t* rows;
  int32_t* table_row;
  int32_t* context_length;
  int32_t* position;
} glm_begin_drafts_args;

typedef struct glm_keep_drafts_args {
  int32_t num_drafts;
  int32_t num_table_rows;
  const int32_t* state_row;
  const int32_t* draft_rows;
  const int32_t* draft_ids;
  glm_sequence_state* states;
} glm_keep_drafts_args;

typedef struct glm_embed_norm_concat_args {
  int32_t num_tokens;
  int32_t hidden_size;
  float epsilon;
  const int32_t* token_ids;
  const int32_t* positions;
  const glm_matrix* table;
  const float* embedding_norm;
  const void* hidden;
  const float* hidden_norm;
  void* output;
} glm_embed_norm_concat_args;

typedef struct glm_sample_args {
  int32_t num_rows;
  int32_t vocab_size;
  int32_t num_count_rows;
  int32_t num_masks;
  int32_t num_biases;
  float* logits;
  const float* temperature;
  const float* top_p;
  const float* min_p;
  const int32_t* top_k;
  const float* repetition_penalty;
  const float* frequency_penalty;
  const float* presence_penalty;
  const uint64_t* seed;
  const int32_t* position;
  const int32_t* row_offset;
  const int32_t* input_ids;
  const int32_t* count_row;
  const int32_t* mask_row;
  const int32_t* num_logprobs;
  const int32_t* forced_token;
  const int32_t* bias_begin;
  const int32_t* bias_end;
  const int32_t* bias_tokens;
  const float* bias_values;
  const uint32_t* masks;
  const uint32_t* counts;
  int32_t* token_ids;
  int32_t* is_finite;
  float* logprob;
  int32_t* top_ids;
  float* top_logprobs;
} glm_sample_args;

typedef struct glm_workspace_shape {
  uint32_t struct_size;
  int32_t world_size;
  int32_t max_step_tokens;
  int32_t max_decode_rows;
  int32_t rows_per_sequence;
  int32_t max_context;
  int32_t max_logit_rows;
  int32_t hidden_size;
  int32_t num_heads;
  int32_t num_kv_heads;
  int32_t head_dim;
  int32_t intermediate_size;
  int32_t moe_intermediate_size;
  int32_t num_local_experts;
  int32_t top_k;
  int32_t vocab_size;
} glm_workspace_shape;

typedef struct glm_model_shape {
  uint32_t struct_size;
  int32_t world_size;
  int32_t num_heads;
  int32_t rotary_dim;
  int32_t vocab_size;
  int32_t top_k;
  int32_t num_local_experts;
  int32_t merges_shared_expert;
  const glm_kv_cache* cache;
  const glm_matrix* embedding;
  const glm_matrix* head;
  const glm_matrix* qkv;
  const glm_matrix* output;
  const glm_matrix* gate_up;
  const glm_matrix* down;
  const glm_matrix* router;
  const glm_matrix* experts_gate_up;
  const glm_matrix* experts_down;
  const glm_matrix* joint;
} glm_model_shape;

typedef struct glm_backend {
  uint32_t abi_version;
  uint32_t struct_size;
  const char* kind;

  glm_status (*device_count)(int32_t* count, glm_message* message);
  glm_status (*group_create)(const glm_group_options* options,
                             glm_group** group, glm_message* message);
  void (*group_abort)(glm_group* group);
  void (*group_free)(glm_group* group);
  glm_status (*device_open)(const glm_device_options* options,
                            glm_device** device, glm_message* message);
  void (*device_close)(glm_device* device);
  void (*device_message)(glm_device* device, glm_message* message);
  glm_status (*device_info)(glm_device* device, glm_device_info* info);

  glm_status (*allocate)(glm_device* device, int32_t kind, int64_t bytes,
                         void** memory);
  glm_status (*release)(glm_device* device, void* memory);
  glm_status (*host_allocate)(glm_device* device, int64_t bytes, void** memory);
  glm_status (*host_release)(glm_device* device, void* memory);
  glm_status (*upload)(glm_device* device, void* destination,
                       const void* source, int64_t bytes);
  glm_status (*download)(glm_device* device, void* destination,
                         const void* source, int64_t bytes);
  glm_status (*synchronise)(glm_device* device);

  glm_status (*matrix_bytes)(const glm_matrix* matrix, int64_t* bytes);
  glm_status (*kv_page_bytes)(const glm_kv_cache* cache, int64_t* bytes);
  glm_status (*workspace_bytes)(const glm_workspace_shape* shape,
                                int64_t* bytes);
  glm_status (*set_workspace)(glm_device* device,
                              const glm_workspace_shape* shape, void* memory,
                              int64_t bytes);
  glm_status (*group_bind)(glm_device* device, void* memory, int64_t bytes);
  glm_status (*place_rows)(glm_device* device, const glm_place_rows_args* args);
  glm_status (*place_vector)(glm_device* device,
                             const glm_place_vector_args* args);
  glm_status (*rope_table)(glm_device* device, const glm_rope_table_args* args);

  glm_status (*copy_pages)(glm_device* device, const glm_copy_pages_args* args);
  glm_status (*save_pages)(glm_device* device,
                           const glm_transfer_pages_args* args);
  glm_status (*restore_pages)(glm_device* device,
                              const glm_transfer_pages_args* args);

  glm_status (*embed)(glm_device* device, const glm_embed_args* args);
  glm_status (*quantise)(glm_device* device, const glm_quantise_args* args);
  glm_status (*swiglu_quantise)(glm_device* device,
                                const glm_swiglu_quantise_args* args);
  glm_status (*reduce_add_norm_quantise)(
      glm_device* device, const glm_reduce_add_norm_quantise_args* args);
  glm_status (*linear)(glm_device* device, const glm_linear_args* args);
  glm_status (*norm_rope_store)(glm_device* device,
                                const glm_norm_rope_store_args* args);
  glm_status (*attention)(glm_device* device, const glm_attention_args* args);
  glm_status (*route)(glm_device* device, const glm_route_args* args);
  glm_status (*experts)(glm_device* device, const glm_experts_args* args);
  glm_status (*all_gather)(glm_device* device, const glm_all_gather_args* args);
  glm_status (*all_to_all)(glm_device* device, const glm_all_to_all_args* args);
  glm_status (*logits)(glm_device* device, const glm_logits_args* args);
  glm_status (*count_tokens)(glm_device* device,
                             const glm_count_tokens_args* args);
  glm_status (*sample)(glm_device* device, const glm_sample_args* args);
  glm_status (*accept)(glm_device* device, const glm_accept_args* args);

  glm_status (*graph_begin)(glm_device* device);
  glm_status (*graph_end)(glm_device* device, void** graph);
  glm_status (*graph_replay)(glm_device* device, void* graph);
  glm_status (*graph_free)(glm_device* device, void* graph);

  glm_status (*download_begin)(glm_device* device, void* destination,
                               const void* source, int64_t bytes);
  glm_status (*event_create)(glm_device* device, void** event);
  glm_status (*event_record)(glm_device* device, void* event);
  glm_status (*event_synchronise)(glm_device* device, void* event);
  glm_status (*event_elapsed)(glm_device* device, void* begin, void* end,
                              float* milliseconds);
  glm_status (*event_free)(glm_device* device, void* event);
  glm_status (*place_random)(glm_device* device,
                             const glm_place_random_args* args);
  glm_status (*begin_step)(glm_device* device, const glm_begin_step_args* args);
  glm_status (*measure_read)(glm_device* device, const void* memory,
                             int64_t bytes, double* bytes_per_second);
  glm_status (*check_model)(const glm_model_shape* shape, glm_message* message);
  glm_status (*begin_drafts)(glm_device* device,
                             const glm_begin_drafts_args* args);
  glm_status (*embed_norm_concat)(glm_device* device,
                                  const glm_embed_norm_concat_args* args);
  glm_status (*keep_drafts)(glm_device* device,
                            const glm_keep_drafts_args* args);
} glm_backend;

#define GLM_BACKEND_OPEN_SYMBOL "glm_backend_open"

typedef glm_status (*glm_backend_open_function)(uint32_t abi_version,
                                                const glm_backend** backend,
                                                glm_message* message);

#if defined(GLM_BACKEND_IMPLEMENTATION)
__attribute__((visibility("default"))) glm_status glm_backend_open(
    uint32_t abi_version, const glm_backend** backend, glm_message* message);
#endif

#endif
