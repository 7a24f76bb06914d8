#ifndef GLM_PTX_RECIPROCAL_HPP
#define GLM_PTX_RECIPROCAL_HPP

namespace glm::ptx {

__device__ inline float approximate_reciprocal(float value) {
  float reciprocal;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(reciprocal) : "f"(value));
  return reciprocal;
}

}

#endif
