#include "glm/backend.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define MAX_RANKS 64
#define EVERY_RANK -1
#define NAME_CAPACITY 32
#define PATH_CAPACITY 4096
#define MEETING_SECONDS 60

#define OPERATIONS(X)                                            \
  X(place_rows, glm_place_rows_args)                             \
  X(embed, glm_embed_args)                                       \
  X(quantise, glm_quantise_args)                                 \
  X(swiglu_quantise, glm_swiglu_quantise_args)                   \
  X(linear, glm_linear_args)                                     \
  X(norm_rope_store, glm_norm_rope_store_args)                   \
  X(attention, glm_attention_args)                               \
  X(route, glm_route_args)                                       \
  X(experts, glm_experts_args)                                   \
  X(reduce_add_norm_quantise, glm_reduce_add_norm_quantise_args) \
  X(all_gather, glm_all_gather_args)                             \
  X(all_to_all, glm_all_to_all_args)                             \
  X(logits, glm_logits_args)                                     \
  X(sample, glm_sample_args)                                     \
  X(accept, glm_accept_args)                                     \
  X(begin_drafts, glm_begin_drafts_args)                         \
  X(embed_norm_concat, glm_embed_norm_concat_args)               \
  X(keep_drafts, glm_keep_drafts_args)                           \
  X(copy_pages, glm_copy_pages_args)

typedef struct {
  char inner_path[PATH_CAPACITY];
  char operation[NAME_CAPACITY];
  int32_t rank;
  atomic_int calls_left;
  atomic_int has_failed;
  atomic_int num_allocations;
  atomic_int num_opened;
  int32_t hangs;
  int32_t is_asynchronous;
  int32_t busy_seconds;
  int32_t num_to_meet;
  int32_t num_met;
  int32_t has_met[MAX_RANKS];
  int32_t loses[MAX_RANKS];
  int32_t num_devices;
  int64_t memory_free_bytes[MAX_RANKS];
  glm_device* devices[MAX_RANKS];
  const glm_backend* inner;
  glm_backend table;
} Failing;

static Failing failing;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;

__attribute__((visibility("default"))) void failing_arm(const char* inner_path,
                                                        int32_t rank,
                                                        const char* operation,
                                                        int32_t call) {
  snprintf(failing.inner_path, PATH_CAPACITY, "%s", inner_path);
  snprintf(failing.operation, NAME_CAPACITY, "%s", operation);
  failing.rank = rank;
  memset(failing.loses, 0, sizeof failing.loses);
  atomic_store(&failing.has_failed, 0);
  atomic_store(&failing.num_allocations, 0);
  atomic_store(&failing.num_opened, 0);
  atomic_store(&failing.calls_left, call);
}

__attribute__((visibility("default"))) void failing_hang(int32_t hangs) {
  pthread_mutex_lock(&mutex);
  failing.hangs = hangs;
  pthread_cond_broadcast(&changed);
  pthread_mutex_unlock(&mutex);
}

__attribute__((visibility("default"))) void failing_lose(int32_t rank) {
  failing.loses[rank] = 1;
}

__attribute__((visibility("default"))) void failing_be_asynchronous(
    int32_t is_asynchronous) {
  failing.is_asynchronous = is_asynchronous;
}

__attribute__((visibility("default"))) void failing_be_busy(
    int32_t busy_seconds) {
  failing.busy_seconds = busy_seconds;
}

__attribute__((visibility("default"))) void failing_let_meet(
    int32_t num_ranks) {
  failing.num_to_meet = num_ranks;
  failing.num_met = 0;
  memset(failing.has_met, 0, sizeof failing.has_met);
}

__attribute__((visibility("default"))) int32_t failing_num_met(void) {
  return failing.num_met;
}

__attribute__((visibility("default"))) int32_t failing_has_failed(void) {
  return atomic_load(&failing.has_failed);
}

__attribute__((visibility("default"))) int32_t failing_num_allocations(void) {
  return atomic_load(&failing.num_allocations);
}

__attribute__((visibility("default"))) int32_t failing_num_opened(void) {
  return atomic_load(&failing.num_opened);
}

__attribute__((visibility("default"))) void failing_set_memories(
    int32_t num_devices, const int64_t* memory_free_bytes) {
  memset(failing.memory_free_bytes, 0, sizeof failing.memory_free_bytes);
  failing.num_devices = num_devices;
  for (int32_t device = 0; device < num_devices && device < MAX_RANKS;
       ++device) {
    failing.memory_free_bytes[device] = memory_free_bytes[device];
  }
}

static int32_t rank_of(const glm_device* device) {
  for (int32_t rank = 0; rank < MAX_RANKS; ++rank) {
    if (device != NULL && failing.devices[rank] == device) {
      return rank;
    }
  }
  return -1;
}

static int is_armed(int32_t rank) {
  return rank >= 0 && (failing.rank == EVERY_RANK || rank == failing.rank);
}

static int meets_in_vain(int32_t rank) {
  struct timespec until;
  clock_gettime(CLOCK_REALTIME, &until);
  until.tv_sec += MEETING_SECONDS;
  int status = 0;
  pthread_mutex_lock(&mutex);
  if (rank >= 0 && rank < failing.num_to_meet && !failing.has_met[rank]) {
    failing.has_met[rank] = 1;
    ++failing.num_met;
    pthread_cond_broadcast(&changed);
    while (failing.num_met < failing.num_to_meet && status == 0) {
      status = pthread_cond_timedwait(&changed, &mutex, &until);
    }
  }
  pthread_mutex_unlock(&mutex);
  return status != 0;
}

static void wait_while_hanging(void) {
  pthread_mutex_lock(&mutex);
  while (failing.hangs) {
    pthread_cond_wait(&changed, &mutex);
  }
  pthread_mutex_unlock(&mutex);
}

static int64_t now_ns(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec * INT64_C(1000000000) + now.tv_nsec;
}

static void compute_while_busy(void) {
  const int64_t until = now_ns() + failing.busy_seconds * INT64_C(1000000000);
  while (now_ns() < until) {
  }
  failing.busy_seconds = 0;
}

static int fails_now(glm_device* device, const char* operation) {
  const int32_t rank = rank_of(device);
  if (strcmp(operation, "place_rows") == 0 && meets_in_vain(rank)) {
    return 1;
  }
  if (!is_armed(rank) || strcmp(operation, failing.operation) != 0) {
    return 0;
  }
  const int left = atomic_fetch_sub(&failing.calls_left, 1);
  if (left > 0 || (left < 0 && failing.rank != EVERY_RANK)) {
    return 0;
  }
  atomic_store(&failing.has_failed, 1);
  compute_while_busy();
  wait_while_hanging();
  return 1;
}

#define WRAP(name, type)                                                   \
  static glm_status failing_##name(glm_device* device, const type* args) { \
    return fails_now(device, #name) ? GLM_DEVICE_ERROR                     \
                                    : failing.inner->name(device, args);   \
  }
OPERATIONS(WRAP)

static glm_status failing_device_count(int32_t* count, glm_message* message) {
  if (failing.num_devices == 0) {
    return failing.inner->device_count(count, message);
  }
  *count = failing.num_devices;
  return GLM_OK;
}

static glm_status failing_device_info(glm_device* device,
                                      glm_device_info* info) {
  const glm_status status = failing.inner->device_info(device, info);
  const int32_t rank = rank_of(device);
  info->is_asynchronous |= failing.is_asynchronous;
  if (0 <= rank && rank < failing.num_devices) {
    info->memory_free_bytes = failing.memory_free_bytes[rank];
    snprintf(info->name, sizeof info->name, "device %d", rank);
  }
  return status;
}

static glm_status failing_device_open(const glm_device_options* options,
                                      glm_device** device,
                                      glm_message* message) {
  atomic_fetch_add(&failing.num_opened, 1);
  const glm_status status =
      failing.inner->device_open(options, device, message);
  if (status == GLM_OK && options->rank < MAX_RANKS) {
    failing.devices[options->rank] = *device;
  }
  return status;
}

static glm_status failing_event_synchronise(glm_device* device, void* event) {
  const int32_t rank = rank_of(device);
  if (rank >= 0 && failing.loses[rank] && atomic_load(&failing.has_failed)) {
    return GLM_DEVICE_ERROR;
  }
  return failing.inner->event_synchronise(device, event);
}

static glm_status failing_allocate(glm_device* device, int32_t kind,
                                   int64_t bytes, void** memory) {
  atomic_fetch_add(&failing.num_allocations, 1);
  return failing.inner->allocate(device, kind, bytes, memory);
}

static void failing_device_close(glm_device* device) {
  const int32_t rank = rank_of(device);
  if (rank >= 0) {
    failing.devices[rank] = NULL;
  }
  failing.inner->device_close(device);
}

static void failing_device_message(glm_device* device, glm_message* message) {
  if (is_armed(rank_of(device)) && atomic_load(&failing.has_failed)) {
    snprintf(message->text, GLM_MESSAGE_CAPACITY, "made to fail");
    return;
  }
  failing.inner->device_message(device, message);
}

static void arm_from_environment(void) {
  const char* inner_path = getenv("FAILING_INNER");
  const char* rank = getenv("FAILING_RANK");
  const char* operation = getenv("FAILING_OPERATION");
  const char* call = getenv("FAILING_CALL");
  if (inner_path == NULL || rank == NULL || operation == NULL || call == NULL) {
    return;
  }
  failing_arm(inner_path, atoi(rank), operation, atoi(call));
  failing_hang(getenv("FAILING_HANGS") != NULL);
}

static glm_status open_inner(uint32_t abi_version, glm_message* message) {
  if (failing.inner_path[0] == 0) {
    arm_from_environment();
  }
  void* library = dlopen(failing.inner_path, RTLD_NOW | RTLD_LOCAL);
  if (library == NULL) {
    snprintf(message->text, GLM_MESSAGE_CAPACITY, "%s", dlerror());
    return GLM_NOT_FOUND;
  }
  void* symbol = dlsym(library, GLM_BACKEND_OPEN_SYMBOL);
  if (symbol == NULL) {
    snprintf(message->text, GLM_MESSAGE_CAPACITY, "%s", dlerror());
    return GLM_NOT_SUPPORTED;
  }
  glm_backend_open_function open = NULL;
  memcpy(&open, &symbol, sizeof open);
  return open(abi_version, &failing.inner, message);
}

__attribute__((visibility("default"))) glm_status glm_backend_open(
    uint32_t abi_version, const glm_backend** backend, glm_message* message) {
  const glm_status status = open_inner(abi_version, message);
  if (status != GLM_OK) {
    return status;
  }
  failing.table = *failing.inner;
  failing.table.device_count = failing_device_count;
  failing.table.device_info = failing_device_info;
  failing.table.device_open = failing_device_open;
  failing.table.device_close = failing_device_close;
  failing.table.device_message = failing_device_message;
  failing.table.event_synchronise = failing_event_synchronise;
  failing.table.allocate = failing_allocate;
#define REPLACE(name, type) failing.table.name = failing_##name;
  OPERATIONS(REPLACE)
  *backend = &failing.table;
  return GLM_OK;
}
