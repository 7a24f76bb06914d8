#pragma once

#include <dlfcn.h>

#include <string>

#include "native/base/failure.hpp"

namespace glm {

template <typename Function>
Function driver_function(const char* where, const char* name) {
  void* driver = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD);
  void* address = driver == nullptr ? nullptr : dlsym(driver, name);
  if (address == nullptr)
    throw Failure(GLM_DEVICE_ERROR, std::string(where) +
                                        ": the NVIDIA driver has no " + name +
                                        "; install a newer driver");
  return reinterpret_cast<Function>(address);
}

}
