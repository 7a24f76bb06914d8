#pragma once

#include <cuda_fp8.h>

#include <cstdint>

namespace glm::kernels {

constexpr float kLargestCode = 448.0f;
constexpr float kZeroRowScale = 1.1920928955078125e-7f;

__device__ inline float row_scale_of(float largest) {
  float scale = __fdiv_rn(largest, kLargestCode);
  return scale == 0.0f ? kZeroRowScale : scale;
}

__device__ inline uint16_t encode_pair(float low, float high) {
  return __nv_cvt_float2_to_fp8x2(make_float2(low, high), __NV_SATFINITE,
                                  __NV_E4M3);
}

class RowQuotient {
 public:
  __device__ explicit RowQuotient(float scale)
      : scale_(scale),
        inverse_(1.0f / scale),
        is_plain_(scale >= kSmallestPlain && scale <= kLargestPlain) {}

  __device__ float operator()(float value) const {
    return is_plain_ ? plain(value) : exact(value);
  }

  __device__ bool is_plain() const { return is_plain_; }

  __device__ float exact(float value) const { return __fdiv_rn(value, scale_); }

  __device__ float plain(float value) const {
    float first = value * inverse_;
    float second = corrected(value, first);
    return copysignf(corrected(value, second), value);
  }

 private:
  static constexpr float kSmallestPlain = 1e-24f;
  static constexpr float kLargestPlain = 1e+34f;

  __device__ float corrected(float value, float quotient) const {
    float rest = __fmaf_rn(-quotient, scale_, value);
    return __fmaf_rn(rest, inverse_, quotient);
  }

  float scale_;
  float inverse_;
  bool is_plain_;
};

}
