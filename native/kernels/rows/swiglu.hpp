#pragma once

#include "native/ptx/approximate.hpp"

namespace glm::kernels {

__device__ inline float swiglu(float gate, float up) {
  const float exponential =
      ptx::approximate_exp2(__fmul_rn(gate, -ptx::kLog2E));
  const float sigmoid =
      ptx::approximate_reciprocal(__fadd_rn(1.0f, exponential));
  return __fmul_rn(__fmul_rn(gate, sigmoid), up);
}

}
