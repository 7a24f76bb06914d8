#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "glm/engine.h"

#define MAX_PROMPT 24
#define POLL_CAPACITY 16
#define WAIT_NS 1000000000LL

typedef struct {
  void* library;
  __typeof__(&engine_default_options) default_options;
  __typeof__(&engine_default_request) default_request;
  __typeof__(&init_engine_with) init;
  __typeof__(&free_engine) free;
  __typeof__(&get_engine_info) info;
  __typeof__(&engine_submit) submit;
  __typeof__(&engine_cancel) cancel;
  __typeof__(&engine_preempt) preempt;
  __typeof__(&engine_set_masks) set_masks;
  __typeof__(&engine_poll) poll;
  __typeof__(&engine_wait) wait;
  __typeof__(&engine_resize_pool) resize_pool;
  __typeof__(&prefill) prefill;
  __typeof__(&decode_step) decode_step;
  __typeof__(&run_batch_decode) run_batch_decode;
  __typeof__(&free_request_state) free_state;
} Functions;

static void fail(const char* operation, const char* text) {
  fprintf(stderr, "soak: %s: %s\n", operation, text);
  exit(1);
}

static void expect(glm_status status, const char* operation,
                   const glm_message* message) {
  if (status != GLM_OK) {
    fail(operation, message->text);
  }
}

static void* find(void* library, const char* name) {
  void* symbol = dlsym(library, name);
  if (symbol == NULL) {
    fail("dlsym", dlerror());
  }
  return symbol;
}

static Functions load(const char* path) {
  Functions f;
  f.library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (f.library == NULL) {
    fail("dlopen", dlerror());
  }
  f.default_options = find(f.library, "engine_default_options");
  f.default_request = find(f.library, "engine_default_request");
  f.init = find(f.library, "init_engine_with");
  f.free = find(f.library, "free_engine");
  f.info = find(f.library, "get_engine_info");
  f.submit = find(f.library, "engine_submit");
  f.cancel = find(f.library, "engine_cancel");
  f.preempt = find(f.library, "engine_preempt");
  f.set_masks = find(f.library, "engine_set_masks");
  f.poll = find(f.library, "engine_poll");
  f.wait = find(f.library, "engine_wait");
  f.resize_pool = find(f.library, "engine_resize_pool");
  f.prefill = find(f.library, "prefill");
  f.decode_step = find(f.library, "decode_step");
  f.run_batch_decode = find(f.library, "run_batch_decode");
  f.free_state = find(f.library, "free_request_state");
  return f;
}

static glm_engine* open_engine(const Functions* f, const char* model_dir,
                               int32_t world_size) {
  engine_options options = {.struct_size = sizeof options};
  glm_engine* engine = NULL;
  glm_message message = {{0}};
  f->default_options(&options);
  options.model_dir = model_dir;
  options.device = "cpu";
  options.world_size = world_size;
  options.max_batch = 8;
  options.max_seq = 40;
  options.page_size = 4;
  options.num_pages = 16;
  options.num_threads = world_size;
  options.max_step_tokens = 24;
  options.prefill_chunk = 7;
  expect(f->init(&options, &engine, &message), "init_engine_with", &message);
  return engine;
}

static int32_t fill_prompt(int32_t* prompt, int32_t index, int32_t vocab_size) {
  int32_t length = 1 + index * 5 % MAX_PROMPT;
  for (int32_t i = 0; i < length; ++i) {
    prompt[i] = (index % 3 * 101 + i * 7) % vocab_size;
  }
  return length;
}

static void vary_sampling(engine_sampling* sampling, int32_t index) {
  sampling->seed = (uint64_t)index;
  if (index % 2 == 1) {
    sampling->temperature = 0.8f;
    sampling->top_p = 0.9f;
    sampling->top_k = index;
  }
  if (index % 3 == 1) {
    sampling->repetition_penalty = 1.2f;
    sampling->presence_penalty = 0.1f;
  }
  if (index % 5 == 1) {
    sampling->num_logprobs = 3;
  }
}

static uint32_t* make_mask(int32_t vocab_size) {
  size_t num_words = ((size_t)vocab_size + 31) / 32;
  uint32_t* mask = malloc(num_words * sizeof(uint32_t));
  if (mask == NULL) {
    fail("malloc", "no memory for a mask");
  }
  memset(mask, 0xD5, num_words * sizeof(uint32_t));
  return mask;
}

static void give_next_mask(const Functions* f, glm_engine* engine,
                           const engine_event* event, const uint32_t* mask) {
  glm_message message = {{0}};
  int32_t next = event->index + 1;
  engine_mask given = {event->request_id, next % 3 == 0 ? NULL : mask, next};
  glm_status status = f->set_masks(engine, &given, 1, &message);
  int is_masked = event->request_id % 3 == 0;
  if (status != GLM_NOT_FOUND &&
      status != (is_masked ? GLM_OK : GLM_INVALID_ARGUMENT)) {
    fail("engine_set_masks", message.text);
  }
}

static uint64_t submit(const Functions* f, glm_engine* engine, int32_t index,
                       int32_t vocab_size, float* logits) {
  static const int32_t begins[] = {0, 2}, stops[] = {3, 4}, biased[] = {5, 6};
  static const float values[] = {1.5f, -2.0f};
  int32_t prompt[MAX_PROMPT];
  engine_request request;
  uint64_t id = 0;
  glm_message message = {{0}};
  f->default_request(&request);
  request.prompt = prompt;
  request.prompt_length = fill_prompt(prompt, index, vocab_size);
  request.max_tokens = 1 + index % 8;
  request.min_tokens = index % 2;
  request.ignore_eos = index % 2;
  request.num_stop_sequences = 1;
  request.stop_sequence_begin = begins;
  request.stop_sequence_tokens = stops;
  request.num_biases = 2;
  request.bias_tokens = biased;
  request.bias_values = values;
  request.priority = index % 4;
  request.logits = logits;
  request.logits_capacity = logits == NULL ? 0 : 1;
  vary_sampling(&request.sampling, index);
  uint32_t* mask = make_mask(vocab_size);
  request.mask = (index + 1) % 3 == 0 ? mask : NULL;
  expect(f->submit(engine, &request, &id, &message), "engine_submit", &message);
  free(mask);
  return id;
}

static void check_refusal(const Functions* f, glm_engine* engine) {
  const int32_t prompt[] = {-1};
  engine_request request;
  glm_message message = {{0}};
  f->default_request(&request);
  request.prompt = prompt;
  request.prompt_length = 1;
  if (f->submit(engine, &request, NULL, &message) != GLM_INVALID_ARGUMENT) {
    fail("engine_submit", "a token outside the vocabulary was accepted");
  }
}

static void await_ends(const Functions* f, glm_engine* engine, int32_t count,
                       int32_t vocab_size) {
  uint32_t* mask = make_mask(vocab_size);
  engine_event events[POLL_CAPACITY];
  while (count > 0) {
    int32_t num_events = 0;
    f->wait(engine, WAIT_NS);
    f->poll(engine, events, POLL_CAPACITY, &num_events);
    for (int32_t i = 0; i < num_events; ++i) {
      if (events[i].kind == ENGINE_EVENT_FAILED) {
        fail("request", events[i].message);
      }
      if (events[i].kind == ENGINE_EVENT_TOKEN) {
        give_next_mask(f, engine, &events[i], mask);
      }
      count -= events[i].kind == ENGINE_EVENT_FINISHED;
    }
  }
  free(mask);
}

static void run_requests(const Functions* f, glm_engine* engine, int32_t count,
                         int32_t vocab_size) {
  float* logits = malloc((size_t)vocab_size * sizeof(float));
  glm_message message = {{0}};
  if (logits == NULL) {
    fail("malloc", "no memory for a row of logits");
  }
  for (int32_t i = 0; i < count; ++i) {
    uint64_t id = submit(f, engine, i, vocab_size, i == 0 ? logits : NULL);
    if (i % 10 == 3) {
      f->cancel(engine, id, &message);
    }
    if (i % 10 == 6) {
      f->preempt(engine, id, &message);
    }
  }
  check_refusal(f, engine);
  await_ends(f, engine, count, vocab_size);
  free(logits);
}

static void leave_one_waiting(const Functions* f, glm_engine* engine,
                              int32_t vocab_size) {
  int32_t num_events = 0;
  engine_event event;
  submit(f, engine, 53, vocab_size, NULL);
  while (num_events == 0) {
    f->wait(engine, WAIT_NS);
    f->poll(engine, &event, 1, &num_events);
  }
  if (event.kind != ENGINE_EVENT_TOKEN) {
    fail("request", "a masked request ended at its first token");
  }
}

static void run_states(const Functions* f, glm_engine* engine,
                       int32_t vocab_size) {
  const int32_t prompt[] = {1, 2, 3, 4, 5, 6, 7, 8, 9};
  engine_sampling sampling = {.top_p = 1, .repetition_penalty = 1.1f};
  float* logits = malloc(9 * (size_t)vocab_size * sizeof(float));
  engine_state* states[2] = {NULL, NULL};
  engine_sampling both[2] = {sampling, sampling};
  int32_t tokens[6];
  glm_message message = {{0}};
  if (logits == NULL) {
    fail("malloc", "no memory for nine rows of logits");
  }
  expect(f->prefill(engine, prompt, 9, 1, logits, &states[0], &message),
         "prefill", &message);
  expect(f->prefill(engine, prompt, 5, 0, logits, &states[1], &message),
         "prefill", &message);
  expect(f->decode_step(engine, states[0], 3, logits, &message), "decode_step",
         &message);
  expect(f->run_batch_decode(engine, 2, states, both, 3, tokens, &message),
         "run_batch_decode", &message);
  expect(f->resize_pool(engine, 12, &message), "engine_resize_pool", &message);
  f->free_state(engine, states[0]);
  free(logits);
}

int main(int argc, char** argv) {
  if (argc != 5) {
    fail("usage", "soak ENGINE_LIBRARY MODEL_DIR NUM_REQUESTS WORLD_SIZE");
  }
  Functions f = load(argv[1]);
  glm_engine* engine = open_engine(&f, argv[2], atoi(argv[4]));
  engine_info info = {.struct_size = sizeof info};
  glm_message message = {{0}};
  expect(f.info(engine, &info), "get_engine_info", &message);
  run_requests(&f, engine, atoi(argv[3]), info.vocab_size);
  run_states(&f, engine, info.vocab_size);
  expect(f.info(engine, &info), "get_engine_info", &message);
  printf("finished %lld preempted %lld steps %lld pages %d owned %d\n",
         (long long)info.num_finished, (long long)info.num_preemptions,
         (long long)info.num_steps, info.total_pages, info.owned_pages);
  leave_one_waiting(&f, engine, info.vocab_size);
  f.free(engine);
  return 0;
}
