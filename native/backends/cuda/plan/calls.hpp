#ifndef GLM_BACKENDS_CUDA_PLAN_CALLS_HPP
#define GLM_BACKENDS_CUDA_PLAN_CALLS_HPP

#include "glm/backend.h"

namespace glm::cuda {

glm_status info_of_kind(glm_device_info* info);
glm_status bytes_of_matrix(const glm_matrix* matrix, int64_t* bytes);
glm_status bytes_of_page(const glm_kv_cache* cache, int64_t* bytes);
glm_status bytes_of_workspace(const glm_workspace_shape* shape, int64_t* bytes);
glm_status model_checked(const glm_model_shape* shape, glm_message* message);

}

#endif
