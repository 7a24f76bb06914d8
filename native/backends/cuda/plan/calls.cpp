#include "native/backends/cuda/plan/calls.hpp"

#include "native/backends/cuda/plan/guarded.hpp"
#include "native/backends/cuda/plan/plan.hpp"

namespace glm::cuda {

glm_status info_of_kind(glm_device_info* info) {
  return guarded(nullptr, [&] { kind_info(info); });
}

glm_status bytes_of_matrix(const glm_matrix* matrix, int64_t* bytes) {
  return guarded(nullptr, [&] { matrix_bytes(matrix, bytes); });
}

glm_status bytes_of_page(const glm_kv_cache* cache, int64_t* bytes) {
  return guarded(nullptr, [&] { kv_page_bytes(cache, bytes); });
}

glm_status bytes_of_workspace(const glm_workspace_shape* shape,
                              int64_t* bytes) {
  return guarded(nullptr, [&] { workspace_bytes(shape, bytes); });
}

glm_status model_checked(const glm_model_shape* shape, glm_message* message) {
  return guarded(message, [&] {
    expect_pointer("check_model", "shape", shape);
    expect_equal("check_model", "struct_size", sizeof(glm_model_shape),
                 shape->struct_size);
    check_model(*shape);
  });
}

}
