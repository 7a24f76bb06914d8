#include "glm/backend.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_DEVICES 64
#define MAX_HOST_BLOCKS 64
#define MAX_GRAPHS 256
#define PATH_CAPACITY 4096
#define ARGUMENT_CAPACITY 256

#define OPERATIONS(X)                                            \
  X(embed, glm_embed_args)                                       \
  X(quantise, glm_quantise_args)                                 \
  X(swiglu_quantise, glm_swiglu_quantise_args)                   \
  X(reduce_add_norm_quantise, glm_reduce_add_norm_quantise_args) \
  X(linear, glm_linear_args)                                     \
  X(norm_rope_store, glm_norm_rope_store_args)                   \
  X(attention, glm_attention_args)                               \
  X(route, glm_route_args)                                       \
  X(experts, glm_experts_args)                                   \
  X(all_gather, glm_all_gather_args)                             \
  X(all_to_all, glm_all_to_all_args)                             \
  X(logits, glm_logits_args)                                     \
  X(count_tokens, glm_count_tokens_args)                         \
  X(sample, glm_sample_args)                                     \
  X(accept, glm_accept_args)                                     \
  X(begin_step, glm_begin_step_args)

#define DIRECT(X)                                  \
  X(place_rows, const glm_place_rows_args*)        \
  X(place_vector, const glm_place_vector_args*)    \
  X(place_random, const glm_place_random_args*)    \
  X(rope_table, const glm_rope_table_args*)        \
  X(copy_pages, const glm_copy_pages_args*)        \
  X(save_pages, const glm_transfer_pages_args*)    \
  X(restore_pages, const glm_transfer_pages_args*) \
  X(release, void*)                                \
  X(host_release, void*)                           \
  X(event_free, void*)

typedef struct {
  void* destination;
  const void* source;
  void* copied;
  int64_t bytes;
} Copy;

typedef struct Work {
  glm_status (*execute)(glm_device* device, struct Work* work);
  union {
    char bytes[ARGUMENT_CAPACITY];
    Copy copy;
    void* pointer;
  } arguments;
} Work;

typedef struct {
  Work* items;
  int32_t size;
  int32_t capacity;
} List;

typedef struct {
  char* begin;
  char* end;
} Block;

typedef struct {
  glm_device* device;
  List queue;
  List* recording;
  List graphs[MAX_GRAPHS];
  int32_t num_graphs;
  Block blocks[MAX_HOST_BLOCKS];
  int32_t num_blocks;
} Stream;

static char inner_path[PATH_CAPACITY];
static const glm_backend* inner;
static glm_backend table;
static Stream streams[MAX_DEVICES];
static pthread_mutex_t opening = PTHREAD_MUTEX_INITIALIZER;
static int32_t merges_shared_expert;
static atomic_int_fast64_t num_replays;
static atomic_int_fast64_t num_deferred;

__attribute__((visibility("default"))) void queued_open(const char* path,
                                                        int32_t merges) {
  merges_shared_expert = merges;
  snprintf(inner_path, PATH_CAPACITY, "%s", path);
}

__attribute__((visibility("default"))) int64_t queued_replays(void) {
  return num_replays;
}

__attribute__((visibility("default"))) int64_t queued_deferred(void) {
  return num_deferred;
}

static Stream* stream_of(glm_device* device) {
  for (int32_t i = 0; i < MAX_DEVICES; ++i) {
    if (streams[i].device == device) {
      return &streams[i];
    }
  }
  abort();
}

static Work* push(List* list) {
  if (list->size == list->capacity) {
    list->capacity = list->capacity == 0 ? 64 : 2 * list->capacity;
    list->items = realloc(list->items, (size_t)list->capacity * sizeof(Work));
    if (list->items == NULL) {
      abort();
    }
  }
  return &list->items[list->size++];
}

static Work* defer(glm_device* device,
                   glm_status (*execute)(glm_device*, Work*)) {
  Stream* stream = stream_of(device);
  Work* work =
      push(stream->recording != NULL ? stream->recording : &stream->queue);
  work->execute = execute;
  ++num_deferred;
  return work;
}

static glm_status execute_list(glm_device* device, List* list) {
  glm_status status = GLM_OK;
  for (int32_t i = 0; i < list->size && status == GLM_OK; ++i) {
    status = list->items[i].execute(device, &list->items[i]);
  }
  return status;
}

static glm_status flush(glm_device* device) {
  Stream* stream = stream_of(device);
  const glm_status status = execute_list(device, &stream->queue);
  stream->queue.size = 0;
  return status;
}

#define DEFER(name, type)                                                  \
  static glm_status execute_##name(glm_device* device, Work* work) {       \
    return inner->name(device, (const type*)(void*)work->arguments.bytes); \
  }                                                                        \
  static glm_status queue_##name(glm_device* device, const type* args) {   \
    _Static_assert(sizeof(type) <= ARGUMENT_CAPACITY, #type);              \
    memcpy(defer(device, execute_##name)->arguments.bytes, args,           \
           sizeof(type));                                                  \
    return GLM_OK;                                                         \
  }
OPERATIONS(DEFER)

#define FLUSHED(name, type)                                             \
  static glm_status flushed_##name(glm_device* device, type argument) { \
    const glm_status status = flush(device);                            \
    return status != GLM_OK ? status : inner->name(device, argument);   \
  }
DIRECT(FLUSHED)

static glm_status execute_copy(glm_device* device, Work* work) {
  Copy* copy = &work->arguments.copy;
  const void* source = copy->copied != NULL ? copy->copied : copy->source;
  const glm_status status =
      inner->upload(device, copy->destination, source, copy->bytes);
  free(copy->copied);
  return status;
}

static int is_pinned(const Stream* stream, const void* memory) {
  const char* place = memory;
  for (int32_t i = 0; i < stream->num_blocks; ++i) {
    if (place >= stream->blocks[i].begin && place < stream->blocks[i].end) {
      return 1;
    }
  }
  return 0;
}

static glm_status queue_copy(glm_device* device, void* destination,
                             const void* source, int64_t bytes) {
  Copy* copy = &defer(device, execute_copy)->arguments.copy;
  *copy = (Copy){destination, source, NULL, bytes};
  return GLM_OK;
}

static glm_status queue_upload(glm_device* device, void* destination,
                               const void* source, int64_t bytes) {
  if (is_pinned(stream_of(device), source)) {
    return queue_copy(device, destination, source, bytes);
  }
  void* copied = malloc((size_t)bytes + 1);
  memcpy(copied, source, (size_t)bytes);
  Copy* copy = &defer(device, execute_copy)->arguments.copy;
  *copy = (Copy){destination, source, copied, bytes};
  return GLM_OK;
}

static glm_status flushed_download(glm_device* device, void* destination,
                                   const void* source, int64_t bytes) {
  const glm_status status = flush(device);
  return status != GLM_OK ? status
                          : inner->download(device, destination, source, bytes);
}

static glm_status flushed_host_allocate(glm_device* device, int64_t bytes,
                                        void** memory) {
  Stream* stream = stream_of(device);
  const glm_status status = inner->host_allocate(device, bytes, memory);
  if (status == GLM_OK && stream->num_blocks < MAX_HOST_BLOCKS) {
    char* begin = *memory;
    stream->blocks[stream->num_blocks++] = (Block){begin, begin + bytes};
  }
  return status;
}

static glm_status flushed_synchronise(glm_device* device) {
  const glm_status status = flush(device);
  return status != GLM_OK ? status : inner->synchronise(device);
}

static glm_status execute_record(glm_device* device, Work* work) {
  return inner->event_record(device, work->arguments.pointer);
}

static glm_status queue_record(glm_device* device, void* event) {
  defer(device, execute_record)->arguments.pointer = event;
  return GLM_OK;
}

static glm_status flushed_event_synchronise(glm_device* device, void* event) {
  const glm_status status = flush(device);
  return status != GLM_OK ? status : inner->event_synchronise(device, event);
}

static glm_status begin_graph(glm_device* device) {
  Stream* stream = stream_of(device);
  if (stream->num_graphs == MAX_GRAPHS) {
    return GLM_OUT_OF_MEMORY;
  }
  stream->recording = &stream->graphs[stream->num_graphs++];
  return GLM_OK;
}

static glm_status end_graph(glm_device* device, void** graph) {
  Stream* stream = stream_of(device);
  if (graph != NULL) {
    *graph = stream->recording;
  }
  stream->recording = NULL;
  return GLM_OK;
}

static glm_status execute_graph(glm_device* device, Work* work) {
  ++num_replays;
  return execute_list(device, work->arguments.pointer);
}

static glm_status replay_graph(glm_device* device, void* graph) {
  defer(device, execute_graph)->arguments.pointer = graph;
  return GLM_OK;
}

static glm_status free_graph(glm_device* device, void* graph) {
  const glm_status status = flush(device);
  List* list = graph;
  free(list->items);
  *list = (List){NULL, 0, 0};
  return status;
}

static glm_status describe(glm_device* device, glm_device_info* info) {
  const glm_status status = inner->device_info(device, info);
  info->supports_graphs = 1;
  info->is_asynchronous = 1;
  info->merges_shared_expert = merges_shared_expert;
  return status;
}

static void open_stream(glm_device* device) {
  pthread_mutex_lock(&opening);
  Stream* stream = stream_of(NULL);
  memset(stream, 0, sizeof *stream);
  stream->device = device;
  pthread_mutex_unlock(&opening);
}

static glm_status open_device(const glm_device_options* options,
                              glm_device** device, glm_message* message) {
  const glm_status status = inner->device_open(options, device, message);
  if (status == GLM_OK) {
    open_stream(*device);
  }
  return status;
}

static void close_device(glm_device* device) {
  Stream* stream = stream_of(device);
  free(stream->queue.items);
  stream->device = NULL;
  inner->device_close(device);
}

static glm_status open_inner(uint32_t abi_version, glm_message* message) {
  void* library = dlopen(inner_path, RTLD_NOW | RTLD_LOCAL);
  void* symbol =
      library == NULL ? NULL : dlsym(library, GLM_BACKEND_OPEN_SYMBOL);
  if (symbol == NULL) {
    snprintf(message->text, GLM_MESSAGE_CAPACITY, "%s", dlerror());
    return GLM_NOT_FOUND;
  }
  glm_backend_open_function open = NULL;
  memcpy(&open, &symbol, sizeof open);
  return open(abi_version, &inner, message);
}

static void replace_streams(void) {
  table.device_open = open_device;
  table.device_close = close_device;
  table.device_info = describe;
  table.host_allocate = flushed_host_allocate;
  table.upload = queue_upload;
  table.download = flushed_download;
  table.download_begin = queue_copy;
  table.synchronise = flushed_synchronise;
  table.event_record = queue_record;
  table.event_synchronise = flushed_event_synchronise;
  table.graph_begin = begin_graph;
  table.graph_end = end_graph;
  table.graph_replay = replay_graph;
  table.graph_free = free_graph;
}

__attribute__((visibility("default"))) glm_status glm_backend_open(
    uint32_t abi_version, const glm_backend** backend, glm_message* message) {
  const glm_status status = open_inner(abi_version, message);
  if (status != GLM_OK) {
    return status;
  }
  table = *inner;
  replace_streams();
#define QUEUE(name, type) table.name = queue_##name;
  OPERATIONS(QUEUE)
#define FLUSH(name, type) table.name = flushed_##name;
  DIRECT(FLUSH)
  *backend = &table;
  return GLM_OK;
}
