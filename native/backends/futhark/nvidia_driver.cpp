#include "nvidia_driver.hpp"

#include <nvrtc.h>

#include <string>

#include "native/base/failure.hpp"

namespace glm::adapter {
namespace {

constexpr char kWhere[] = "device futhark";

std::string version_text(int major, int minor) {
  return std::to_string(major) + "." + std::to_string(minor);
}

int attribute(CUdevice_attribute which, int32_t ordinal) {
  int value = 0;
  check_driver(kWhere, cuDeviceGetAttribute(&value, which, ordinal));
  return value;
}

}

void check_driver(const char* where, CUresult result) {
  if (result == CUDA_SUCCESS) return;
  const char* text = nullptr;
  cuGetErrorString(result, &text);
  throw Failure(
      result == CUDA_ERROR_OUT_OF_MEMORY ? GLM_OUT_OF_MEMORY : GLM_DEVICE_ERROR,
      std::string(where) + ": " +
          (text == nullptr ? "unknown CUDA error" : text));
}

void expect_recent_driver() {
  int driver = 0, major = 0, minor = 0;
  check_driver(kWhere, cuDriverGetVersion(&driver));
  if (nvrtcVersion(&major, &minor) != NVRTC_SUCCESS)
    throw Failure(GLM_DEVICE_ERROR, "device futhark: NVRTC has no version");
  if (driver >= 1000 * major + 10 * minor) return;
  throw Failure(GLM_NOT_SUPPORTED,
                "device futhark: NVRTC " + version_text(major, minor) +
                    " needs an NVIDIA driver for CUDA " +
                    version_text(major, minor) + " (CUDA 13.0: 580), got one " +
                    "for CUDA " +
                    version_text(driver / 1000, driver % 1000 / 10));
}

int32_t capability(int32_t ordinal) {
  return 10 * attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, ordinal) +
         attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, ordinal);
}

}
