#include <stddef.h>
#include <stdint.h>

#define GLM_BACKEND_IMPLEMENTATION
extern "C" {
#include "glm/backend.h"
}

#include "native/backends/calls.hpp"
#include "native/backends/cuda/plan/plan.hpp"

namespace glm::cuda {
namespace {

glm_status info_without_device(glm_device* device, glm_device_info* info) {
  return device == nullptr ? silent<kind_info>(info) : GLM_INVALID_ARGUMENT;
}

constexpr glm_backend table_of_plans() {
  glm_backend table = {};
  table.abi_version = GLM_BACKEND_ABI_VERSION;
  table.struct_size = sizeof(glm_backend);
  table.kind = "cuda";
  table.device_info = info_without_device;
  table.matrix_bytes = silent<matrix_bytes, const glm_matrix*, int64_t*>;
  table.kv_page_bytes = silent<kv_page_bytes, const glm_kv_cache*, int64_t*>;
  table.workspace_bytes =
      silent<workspace_bytes, const glm_workspace_shape*, int64_t*>;
  table.check_model = model_checked<check_model>;
  return table;
}

constexpr glm_backend kBackend = table_of_plans();

}
}

extern "C" glm_status glm_backend_open(uint32_t abi_version,
                                       const glm_backend** backend,
                                       glm_message* message) {
  return glm::opened<glm::cuda::kBackend>(abi_version, backend, message);
}
