#pragma once

#include <cstdint>

#include "glm/backend.h"
#include "native/base/failure.hpp"

namespace glm::kernels {

inline void expect_output(const char* where,
                          const glm_activation_output& output) {
  if ((output.codes == nullptr) != (output.row_scale == nullptr))
    reject(where, "codes and row_scale", "both or neither", "one of them");
}

}
