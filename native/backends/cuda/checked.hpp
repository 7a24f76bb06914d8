#pragma once

#include <cuda_runtime.h>

extern "C" {
#include "glm/cudawrap.h"
}

#include "native/base/failure.hpp"

namespace glm::cuda {

inline void check_call(glm_status status, const char* where) {
  if (status == GLM_OK) return;
  glm_message message = {};
  cwCudaLastMessage(&message);
  throw Failure(status, std::string(where) + ": " + message.text);
}

inline cw_stream* wrapped(cudaStream_t stream) {
  return reinterpret_cast<cw_stream*>(stream);
}

inline cw_event* wrapped(cudaEvent_t event) {
  return reinterpret_cast<cw_event*>(event);
}

}
