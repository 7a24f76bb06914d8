#pragma once

#include <cstdio>
#include <cstdlib>

#include "glm/status.h"

namespace glm {

struct CallResult {
  glm_status status;
  int code;
  const char* name;
  const char* text;
};

inline glm_message& last_message() {
  thread_local glm_message message = {};
  return message;
}

inline bool logs_every_call() {
  static const char* const chosen = std::getenv("GLM_LOG_CUDA_CALLS");
  return chosen != nullptr && chosen[0] == '1';
}

inline glm_status report(const char* call, const CallResult& result) {
  if (result.status == GLM_OK) {
    if (logs_every_call()) std::fprintf(stderr, "%s: %s\n", call, result.name);
    return GLM_OK;
  }
  std::snprintf(last_message().text, sizeof last_message().text,
                "%s: status %d %s: %s", call, result.code, result.name,
                result.text);
  std::fprintf(stderr, "%s\n", last_message().text);
  return result.status;
}

inline glm_status report_argument(const char* call, const char* text) {
  return report(call, {GLM_INVALID_ARGUMENT, GLM_INVALID_ARGUMENT,
                       "GLM_INVALID_ARGUMENT", text});
}

inline void copy_last_message(glm_message* message) {
  if (message != nullptr) *message = last_message();
}

}
