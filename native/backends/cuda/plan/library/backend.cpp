#include <stddef.h>
#include <stdint.h>

#define GLM_BACKEND_IMPLEMENTATION
extern "C" {
#include "glm/backend.h"
}

#include "native/backends/cuda/plan/calls.hpp"
#include "native/backends/cuda/plan/guarded.hpp"

namespace glm::cuda {
namespace {

glm_status info_without_device(glm_device* device, glm_device_info* info) {
  return device == nullptr ? info_of_kind(info) : GLM_INVALID_ARGUMENT;
}

constexpr glm_backend table_of_plans() {
  glm_backend table = {};
  table.abi_version = GLM_BACKEND_ABI_VERSION;
  table.struct_size = sizeof(glm_backend);
  table.kind = "cuda";
  table.device_info = info_without_device;
  table.matrix_bytes = bytes_of_matrix;
  table.kv_page_bytes = bytes_of_page;
  table.workspace_bytes = bytes_of_workspace;
  table.check_model = model_checked;
  return table;
}

constexpr glm_backend kBackend = table_of_plans();

}
}

extern "C" glm_status glm_backend_open(uint32_t abi_version,
                                       const glm_backend** backend,
                                       glm_message* message) {
  return glm::cuda::guarded(message, [&] {
    glm::expect_equal("glm_backend_open", "abi_version",
                      GLM_BACKEND_ABI_VERSION, abi_version);
    glm::expect_pointer("glm_backend_open", "backend", backend);
    *backend = &glm::cuda::kBackend;
  });
}
