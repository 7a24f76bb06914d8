#include <stddef.h>
#include <stdint.h>

#define GLM_BACKEND_IMPLEMENTATION
extern "C" {
#include "glm/backend.h"
}

#include "lifecycle.hpp"
#include "native/backends/calls.hpp"
#include "operations.hpp"
#include "platform.hpp"

namespace glm::adapter {
namespace {

void check_model(const glm_model_shape& shape) {
  page_bytes(*shape.cache);
  expect_plain("embed", "a table", *shape.embedding);
  expect_plain("logits", "a head", *shape.head);
  if (shape.router != nullptr) expect_plain("route", "a router", *shape.router);
}

template <auto function, typename... Args>
glm_status on_device(glm_device* device, Args... args) {
  if (device == nullptr) return GLM_INVALID_ARGUMENT;
  return guarded(&device->message, [&] {
    platform::enter(*device);
    function(*device, args...);
  });
}

template <auto function, typename Args>
glm_status operation(glm_device* device, const Args* args) {
  if (device == nullptr) return GLM_INVALID_ARGUMENT;
  return guarded(&device->message, [&] {
    expect_pointer("operation", "args", args);
    platform::enter(*device);
    function(*device, *args);
  });
}

glm_status refuse_graph(glm_device* device) {
  if (device == nullptr) return GLM_INVALID_ARGUMENT;
  write_message(&device->message,
                "graph: this device cannot capture graphs (supports_graphs 0)");
  return GLM_NOT_SUPPORTED;
}

glm_status graph_end(glm_device* device, void**) {
  return refuse_graph(device);
}

glm_status graph_use(glm_device* device, void*) { return refuse_graph(device); }

void abort_group(glm_group* group) {
  if (group != nullptr) group->ranks.abort();
}

void free_group(glm_group* group) { delete group; }

glm_status info_of(glm_device* device, glm_device_info* info) {
  if (device == nullptr) return silent<kind_info>(info);
  return on_device<device_info>(device, info);
}

void last_message(glm_device* device, glm_message* message) {
  if (device != nullptr) write_message(message, device->message.text);
}

glm_status bytes_of_matrix(const glm_matrix* matrix, int64_t* bytes) {
  return guarded(nullptr, [&] {
    expect_pointer("matrix_bytes", "matrix", matrix);
    expect_pointer("matrix_bytes", "bytes", bytes);
    *bytes = matrix_bytes(*matrix);
  });
}

glm_status bytes_of_page(const glm_kv_cache* cache, int64_t* bytes) {
  return guarded(nullptr, [&] {
    expect_pointer("kv_page_bytes", "cache", cache);
    expect_pointer("kv_page_bytes", "bytes", bytes);
    *bytes = page_bytes(*cache);
  });
}

const glm_backend kBackend = {
    GLM_BACKEND_ABI_VERSION,
    sizeof(glm_backend),
    platform::kKind,
    reported<device_count, int32_t*>,
    reported<group_create, const glm_group_options*, glm_group**>,
    abort_group,
    free_group,
    reported<device_open, const glm_device_options*, glm_device**>,
    device_close,
    last_message,
    info_of,
    on_device<allocate, int32_t, int64_t, void**>,
    on_device<release, void*>,
    on_device<host_allocate, int64_t, void**>,
    on_device<host_release, void*>,
    on_device<transfer, void*, const void*, int64_t>,
    on_device<transfer, void*, const void*, int64_t>,
    on_device<synchronise>,
    bytes_of_matrix,
    bytes_of_page,
    silent<workspace_bytes, const glm_workspace_shape*, int64_t*>,
    on_device<set_workspace, const glm_workspace_shape*, void*, int64_t>,
    on_device<group_bind, void*, int64_t>,
    operation<place_rows, glm_place_rows_args>,
    operation<place_vector, glm_place_vector_args>,
    operation<rope_table, glm_rope_table_args>,
    operation<copy_pages, glm_copy_pages_args>,
    operation<save_pages, glm_transfer_pages_args>,
    operation<restore_pages, glm_transfer_pages_args>,
    operation<embed, glm_embed_args>,
    operation<quantise, glm_quantise_args>,
    operation<swiglu_quantise, glm_swiglu_quantise_args>,
    operation<reduce_add_norm_quantise, glm_reduce_add_norm_quantise_args>,
    operation<linear, glm_linear_args>,
    operation<norm_rope_store, glm_norm_rope_store_args>,
    operation<attention, glm_attention_args>,
    operation<route, glm_route_args>,
    operation<experts, glm_experts_args>,
    operation<all_gather, glm_all_gather_args>,
    operation<all_to_all, glm_all_to_all_args>,
    operation<logits, glm_logits_args>,
    operation<count_tokens, glm_count_tokens_args>,
    operation<sample, glm_sample_args>,
    operation<accept, glm_accept_args>,
    refuse_graph,
    graph_end,
    graph_use,
    graph_use,
    on_device<transfer, void*, const void*, int64_t>,
    on_device<event_create, void**>,
    on_device<event_record, void*>,
    on_device<event_synchronise, void*>,
    on_device<event_elapsed, void*, void*, float*>,
    on_device<event_free, void*>,
    operation<place_random, glm_place_random_args>,
    operation<begin_step, glm_begin_step_args>,
    on_device<measure_read, const void*, int64_t, double*>,
    model_checked<check_model>,
    operation<begin_drafts, glm_begin_drafts_args>,
    operation<embed_norm_concat, glm_embed_norm_concat_args>,
    operation<keep_drafts, glm_keep_drafts_args>,
};

}
}

extern "C" glm_status glm_backend_open(uint32_t abi_version,
                                       const glm_backend** backend,
                                       glm_message* message) {
  return glm::opened<glm::adapter::kBackend>(abi_version, backend, message);
}
