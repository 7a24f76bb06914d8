#include <stddef.h>
#include <stdint.h>

#define GLM_BACKEND_IMPLEMENTATION
extern "C" {
#include "glm/backend.h"
}

#include "native/backends/calls.hpp"
#include "native/backends/cuda/lifecycle.hpp"
#include "native/backends/cuda/plan/plan.hpp"
#include "native/kernels/accept/accept.hpp"
#include "native/kernels/attention/attention.hpp"
#include "native/kernels/begin_step/begin_step.hpp"
#include "native/kernels/count_tokens/count_tokens.hpp"
#include "native/kernels/drafts/drafts.hpp"
#include "native/kernels/embed/embed.hpp"
#include "native/kernels/embed_norm_concat/embed_norm_concat.hpp"
#include "native/kernels/experts/experts.hpp"
#include "native/kernels/linear/linear.hpp"
#include "native/kernels/logits/logits.hpp"
#include "native/kernels/norm_rope_store/norm_rope_store.hpp"
#include "native/kernels/pages/pages.hpp"
#include "native/kernels/placement/placement.hpp"
#include "native/kernels/quantise/quantise.hpp"
#include "native/kernels/reduce_add_norm_quantise/reduce_add_norm_quantise.hpp"
#include "native/kernels/route/route.hpp"
#include "native/kernels/sample/sample.hpp"
#include "native/kernels/swiglu_quantise/swiglu_quantise.hpp"

namespace glm::cuda {
namespace {

template <typename Body>
glm_status guarded_device(glm_device* device, Body&& body) {
  if (device == nullptr) return GLM_INVALID_ARGUMENT;
  const glm_status status = guarded(&device->message, [&] {
    use(*device);
    body();
  });
  if (status == GLM_DEVICE_ERROR && !device->is_lost) {
    device->is_lost = true;
    device->loss = device->message.text;
  }
  return status;
}

template <auto function, typename... Args>
glm_status on_device(glm_device* device, Args... args) {
  return guarded_device(device, [&] {
    settle(*device);
    function(*device, args...);
  });
}

template <auto function, bool is_staged, typename Args>
glm_status on_args(glm_device* device, const Args* args) {
  return guarded_device(device, [&] {
    expect_pointer("operation", "args", args);
    if (!is_staged) settle(*device);
    function(*device, *args);
  });
}

template <auto function, Region region, typename Args>
glm_status operation(glm_device* device, const Args* args) {
  return guarded_device(device, [&] {
    expect_pointer("operation", "args", args);
    settle(*device);
    function(context_of(*device, region), *args);
  });
}

void abort_group(glm_group* group) {
  if (group != nullptr) group->peers.abort();
}

void free_group(glm_group* group) { delete group; }

glm_status info_of(glm_device* device, glm_device_info* info) {
  if (device == nullptr) return silent<kind_info>(info);
  return on_device<device_info>(device, info);
}

void last_message(glm_device* device, glm_message* message) {
  if (device != nullptr) write_message(message, device->message.text);
}

const glm_backend kBackend = {
    GLM_BACKEND_ABI_VERSION,
    sizeof(glm_backend),
    "cuda",
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
    on_device<upload, void*, const void*, int64_t>,
    on_device<download, void*, const void*, int64_t>,
    on_device<synchronise>,
    silent<matrix_bytes, const glm_matrix*, int64_t*>,
    silent<kv_page_bytes, const glm_kv_cache*, int64_t*>,
    silent<workspace_bytes, const glm_workspace_shape*, int64_t*>,
    on_device<set_workspace, const glm_workspace_shape*, void*, int64_t>,
    on_device<group_bind, void*, int64_t>,
    on_args<place_rows, true, glm_place_rows_args>,
    on_args<place_vector, true, glm_place_vector_args>,
    operation<kernels::rope_table, kPlacement, glm_rope_table_args>,
    operation<kernels::copy_pages, kPages, glm_copy_pages_args>,
    on_args<save_pages, false, glm_transfer_pages_args>,
    on_args<restore_pages, false, glm_transfer_pages_args>,
    operation<kernels::embed, kEmbed, glm_embed_args>,
    operation<kernels::quantise, kQuantise, glm_quantise_args>,
    operation<kernels::swiglu_quantise, kSwigluQuantise,
              glm_swiglu_quantise_args>,
    operation<kernels::reduce_add_norm_quantise, kReduceAddNormQuantise,
              glm_reduce_add_norm_quantise_args>,
    operation<kernels::linear, kLinear, glm_linear_args>,
    operation<kernels::norm_rope_store, kNormRopeStore,
              glm_norm_rope_store_args>,
    operation<kernels::attention, kAttention, glm_attention_args>,
    operation<kernels::route, kRoute, glm_route_args>,
    operation<kernels::experts, kExperts, glm_experts_args>,
    on_args<all_gather, false, glm_all_gather_args>,
    on_args<all_to_all, false, glm_all_to_all_args>,
    operation<kernels::logits, kLogits, glm_logits_args>,
    operation<kernels::count_tokens, kCountTokens, glm_count_tokens_args>,
    operation<kernels::sample, kSample, glm_sample_args>,
    operation<kernels::accept, kCountTokens, glm_accept_args>,
    on_device<graph_begin>,
    on_device<graph_end, void**>,
    on_device<graph_replay, void*>,
    on_device<graph_free, void*>,
    on_device<download_begin, void*, const void*, int64_t>,
    on_device<event_create, void**>,
    on_device<event_record, void*>,
    on_device<event_synchronise, void*>,
    on_device<event_elapsed, void*, void*, float*>,
    on_device<event_free, void*>,
    operation<kernels::place_random, kPlacement, glm_place_random_args>,
    operation<kernels::begin_step, kPlacement, glm_begin_step_args>,
    on_device<measure_read, const void*, int64_t, double*>,
    model_checked<check_model>,
    operation<kernels::begin_drafts, kPlacement, glm_begin_drafts_args>,
    operation<kernels::embed_norm_concat, kEmbed, glm_embed_norm_concat_args>,
    operation<kernels::keep_drafts, kPlacement, glm_keep_drafts_args>,
};

}

}

extern "C" glm_status glm_backend_open(uint32_t abi_version,
                                       const glm_backend** backend,
                                       glm_message* message) {
  return glm::opened<glm::cuda::kBackend>(abi_version, backend, message);
}
