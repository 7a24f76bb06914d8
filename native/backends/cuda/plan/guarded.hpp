#ifndef GLM_BACKENDS_CUDA_PLAN_GUARDED_HPP
#define GLM_BACKENDS_CUDA_PLAN_GUARDED_HPP

#include <exception>
#include <new>

#include "native/base/failure.hpp"

namespace glm::cuda {

template <typename Body>
glm_status guarded(glm_message* message, Body&& body) {
  try {
    body();
    return GLM_OK;
  } catch (const Failure& failure) {
    write_message(message, failure.what());
    return failure.status();
  } catch (const std::bad_alloc&) {
    write_message(message, "device cuda: the host ran out of memory");
    return GLM_OUT_OF_MEMORY;
  } catch (const std::exception& failure) {
    write_message(message, failure.what());
    return GLM_INTERNAL_ERROR;
  }
}

}

#endif
