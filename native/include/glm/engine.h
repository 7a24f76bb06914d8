#ifndef GLM_ENGINE_H
#define GLM_ENGINE_H

#include <stddef.h>
#include <stdint.h>

#include "status.h"

#define ENGINE_MAX_LOGPROBS 20
#define ENGINE_MAX_EOS_TOKENS 16
#define ENGINE_EVENT_MESSAGE_CAPACITY 256
#define ENGINE_MAX_DRAFT_TOKENS 7

typedef struct glm_engine glm_engine;
typedef struct engine_state engine_state;
typedef struct engine_text engine_text;

enum {
  ENGINE_EXPERTS_DEFAULT = 0,
  ENGINE_EXPERTS_TENSOR_PARALLEL = 1,
  ENGINE_EXPERTS_EXPERT_PARALLEL = 2
};

enum {
  ENGINE_EVENT_TOKEN = 1,
  ENGINE_EVENT_FINISHED = 2,
  ENGINE_EVENT_FAILED = 3,
  ENGINE_EVENT_PROMPT_TOKEN = 4
};

enum {
  ENGINE_SPECULATE_OFF = 0,
  ENGINE_SPECULATE_LOOKUP = 1,
  ENGINE_SPECULATE_AUTO = 2,
  ENGINE_SPECULATE_MTP = 3
};

enum { ENGINE_KV_STORED = 1, ENGINE_KV_REMOVED = 2, ENGINE_KV_CLEARED = 3 };

enum {
  ENGINE_FINISH_NONE = 0,
  ENGINE_FINISH_STOP_TOKEN = 1,
  ENGINE_FINISH_STOP_SEQUENCE = 2,
  ENGINE_FINISH_LENGTH = 3,
  ENGINE_FINISH_CANCELLED = 4,
  ENGINE_FINISH_DEADLINE = 5,
  ENGINE_FINISH_ERROR = 6
};

enum {
  ENGINE_FROM_OPTION = 0,
  ENGINE_FROM_MODEL = 1,
  ENGINE_FROM_DEFAULT = 2,
  ENGINE_FROM_NUM_PAGES = 3,
  ENGINE_FROM_MEMORY = 4
};

typedef void (*engine_progress_function)(void* context, int64_t bytes_done,
                                         int64_t bytes_total,
                                         const char* stage);

typedef struct engine_options {
  uint32_t struct_size;
  int32_t world_size;
  const char* model_dir;
  const char* device;
  const char* library_dir;
  int32_t max_batch;
  int32_t max_seq;
  int32_t page_size;
  int32_t num_pages;
  int32_t expert_layout;
  int32_t num_threads;
  int32_t max_step_tokens;
  int32_t prefill_chunk;
  int32_t max_queue;
  int32_t prefix_cache;
  int32_t kv_dtype;
  int32_t max_logit_rows;
  int64_t memory_limit_bytes;
  engine_progress_function progress;
  void* progress_context;
  int32_t graphs;
  int32_t plan_ahead;
  int32_t check_operations;
  int32_t synthetic;
  int32_t num_layers;
  int32_t memory_limit_percent;
  int64_t device_memory_bytes;
  int32_t kv_events;
  int32_t step_budget_ms;
  int32_t ranks_per_device;
  int32_t max_draft_tokens;
  int32_t speculate;
  float acceptance_length;
} engine_options;

typedef struct engine_sampling {
  float temperature;
  float top_p;
  float min_p;
  int32_t top_k;
  float repetition_penalty;
  float frequency_penalty;
  float presence_penalty;
  int32_t num_logprobs;
  uint64_t seed;
} engine_sampling;

typedef struct engine_request {
  uint32_t struct_size;
  int32_t prompt_length;
  const int32_t* prompt;
  int32_t max_tokens;
  int32_t min_tokens;
  engine_sampling sampling;
  int32_t ignore_eos;
  int32_t num_stop_tokens;
  const int32_t* stop_tokens;
  int32_t num_stop_sequences;
  int32_t num_biases;
  const int32_t* stop_sequence_begin;
  const int32_t* stop_sequence_tokens;
  const int32_t* bias_tokens;
  const float* bias_values;
  int32_t priority;
  int32_t logits_capacity;
  float* logits;
  int64_t deadline_ns;
  const uint32_t* mask;
  int32_t num_allowed_tokens;
  int32_t num_bad_words;
  const int32_t* allowed_tokens;
  const int32_t* bad_word_begin;
  const int32_t* bad_word_tokens;
  int32_t max_thought_tokens;
  int32_t thought_is_open;
  int32_t thought_begin_token;
  int32_t thought_end_token;
  int32_t num_prompt_logprobs;
  int32_t num_draft_tokens;
  int32_t num_prediction_tokens;
  const int32_t* draft_tokens;
  const int32_t* prediction_tokens;
  float* draft_logits;
} engine_request;

typedef struct engine_mask {
  uint64_t request_id;
  const uint32_t* words;
  int32_t index;
  int32_t num_drafts;
  int32_t draft_token;
} engine_mask;

typedef struct engine_event {
  uint64_t request_id;
  int32_t kind;
  int32_t finish_reason;
  int32_t status;
  int32_t token_id;
  int32_t index;
  int32_t prompt_tokens;
  int32_t cached_tokens;
  int32_t num_logprobs;
  float logprob;
  int32_t top_ids[ENGINE_MAX_LOGPROBS];
  float top_logprobs[ENGINE_MAX_LOGPROBS];
  int64_t time_ns;
  int64_t started_ns;
  int32_t num_draft_tokens;
  int32_t num_accepted_tokens;
  int32_t num_predicted_tokens;
  int32_t num_drafts;
  int32_t drafts[ENGINE_MAX_DRAFT_TOKENS];
  char message[ENGINE_EVENT_MESSAGE_CAPACITY];
} engine_event;

typedef struct engine_kv_event {
  uint64_t hash;
  uint64_t parent_hash;
  int32_t kind;
  int32_t has_parent;
} engine_kv_event;

typedef struct engine_info {
  uint32_t struct_size;
  int32_t world_size;
  char device[128];
  char architecture[64];
  int32_t vocab_size;
  int32_t hidden_size;
  int32_t num_layers;
  int32_t num_experts;
  int32_t max_batch;
  int32_t max_seq;
  int32_t page_size;
  int32_t kv_dtype;
  int32_t expert_layout;
  int32_t max_step_tokens;
  int32_t total_pages;
  int32_t free_pages;
  int32_t cached_pages;
  int32_t owned_pages;
  int32_t live_requests;
  int32_t waiting_requests;
  int32_t preempted_requests;
  int32_t is_usable;
  int64_t num_parameters;
  int64_t checkpoint_bytes;
  int64_t weight_bytes;
  int64_t kv_bytes;
  int64_t workspace_bytes;
  int64_t kv_bytes_per_token;
  int64_t load_ns;
  int64_t num_steps;
  int64_t num_prefill_tokens;
  int64_t num_decode_tokens;
  int64_t num_cached_tokens;
  int64_t num_preemptions;
  int64_t num_evictions;
  int64_t num_finished;
  int64_t step_ns;
  int64_t plan_ns;
  int64_t device_ns;
  int64_t launch_ns;
  int64_t num_graph_steps;
  int64_t num_dropped_rows;
  int64_t capture_ns;
  int64_t graph_bytes;
  int32_t num_graphs;
  int32_t plans_ahead;
  int32_t model_max_seq;
  int32_t max_seq_from;
  int32_t max_batch_from;
  int64_t num_late_masks;
  int64_t mask_wait_ns;
  int32_t step_budget_ms;
  int64_t step_costs_ns;
  int32_t num_eos_tokens;
  int32_t eos_tokens[ENGINE_MAX_EOS_TOKENS];
  int32_t speculate;
  int32_t max_draft_tokens;
  int64_t num_drafts;
  int64_t num_draft_tokens;
  int64_t num_accepted_tokens;
  int64_t num_accepted_at[ENGINE_MAX_DRAFT_TOKENS];
  int32_t num_prediction_layers;
} engine_info;

typedef struct engine_step {
  int64_t landed_ns;
  int64_t device_ns;
  int64_t plan_ns;
  int64_t launch_ns;
  int32_t num_tokens;
  int32_t num_decode_tokens;
  int32_t num_sample_rows;
  int32_t owned_pages;
  int32_t is_graph;
  int64_t mask_wait_ns;
  int64_t expected_ns;
} engine_step;

#if defined(__GNUC__)
#define ENGINE_EXPORT __attribute__((visibility("default")))
#else
#define ENGINE_EXPORT
#endif

ENGINE_EXPORT void engine_default_options(engine_options* options);
ENGINE_EXPORT void engine_default_request(engine_request* request);

ENGINE_EXPORT glm_engine* init_engine(const char* model_dir, int32_t max_batch,
                                      int32_t max_seq, int32_t num_devices);
ENGINE_EXPORT glm_status init_engine_with(const engine_options* options,
                                          glm_engine** engine,
                                          glm_message* message);
ENGINE_EXPORT glm_status free_engine(glm_engine* engine);
ENGINE_EXPORT glm_status get_engine_info(glm_engine* engine, engine_info* info);

ENGINE_EXPORT glm_status engine_inspect(const char* model_dir,
                                        engine_text** text,
                                        glm_message* message);
ENGINE_EXPORT glm_status engine_plan(const engine_options* options,
                                     engine_text** text, glm_message* message);
ENGINE_EXPORT glm_status engine_find_gpus(engine_text** text,
                                          glm_message* message);
ENGINE_EXPORT const char* engine_text_data(const engine_text* text);
ENGINE_EXPORT int64_t engine_text_size(const engine_text* text);
ENGINE_EXPORT glm_status engine_text_free(engine_text* text);

ENGINE_EXPORT glm_status engine_submit(glm_engine* engine,
                                       const engine_request* request,
                                       uint64_t* request_id,
                                       glm_message* message);
ENGINE_EXPORT glm_status engine_cancel(glm_engine* engine, uint64_t request_id,
                                       glm_message* message);
ENGINE_EXPORT glm_status engine_preempt(glm_engine* engine, uint64_t request_id,
                                        glm_message* message);
ENGINE_EXPORT glm_status engine_set_masks(glm_engine* engine,
                                          const engine_mask* masks,
                                          int32_t num_masks,
                                          glm_message* message);
ENGINE_EXPORT glm_status engine_poll(glm_engine* engine, engine_event* events,
                                     int32_t capacity, int32_t* count);
ENGINE_EXPORT glm_status engine_wait(glm_engine* engine, int64_t timeout_ns);
ENGINE_EXPORT int32_t engine_event_fd(glm_engine* engine);
ENGINE_EXPORT glm_status engine_take_kv_events(glm_engine* engine,
                                               engine_kv_event* events,
                                               int32_t* tokens,
                                               int32_t capacity,
                                               int32_t* count);
ENGINE_EXPORT int32_t engine_kv_event_fd(glm_engine* engine);
ENGINE_EXPORT glm_status engine_resize_pool(glm_engine* engine,
                                            int32_t num_pages,
                                            glm_message* message);

ENGINE_EXPORT glm_status engine_take_steps(glm_engine* engine,
                                           engine_step* steps, int32_t capacity,
                                           int32_t* count);
ENGINE_EXPORT glm_status engine_profile_begin(glm_engine* engine,
                                              glm_message* message);
ENGINE_EXPORT glm_status engine_profile_end(glm_engine* engine,
                                            engine_text** text,
                                            glm_message* message);
ENGINE_EXPORT glm_status engine_read_rate(glm_engine* engine,
                                          double* bytes_per_second,
                                          glm_message* message);

ENGINE_EXPORT glm_status prefill(glm_engine* engine, const int32_t* tokens,
                                 int32_t num_tokens, int32_t all_positions,
                                 float* logits, engine_state** state,
                                 glm_message* message);
ENGINE_EXPORT glm_status decode_step(glm_engine* engine, engine_state* state,
                                     int32_t token, float* logits,
                                     glm_message* message);
ENGINE_EXPORT glm_status decode_tokens(glm_engine* engine, engine_state* state,
                                       const int32_t* tokens,
                                       int32_t num_tokens, float* logits,
                                       glm_message* message);
ENGINE_EXPORT glm_status run_batch_decode(glm_engine* engine,
                                          int32_t num_states,
                                          engine_state* const* states,
                                          const engine_sampling* sampling,
                                          int32_t num_steps, int32_t* tokens,
                                          glm_message* message);
ENGINE_EXPORT glm_status free_request_state(glm_engine* engine,
                                            engine_state* state);

#endif
