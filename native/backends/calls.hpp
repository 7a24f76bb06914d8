#pragma once

#include <exception>
#include <new>

#include "glm/backend.h"
#include "native/base/failure.hpp"

namespace glm {

template <typename Body>
glm_status guarded(glm_message* message, Body&& body) {
  try {
    body();
    return GLM_OK;
  } catch (const Failure& failure) {
    write_message(message, failure.what());
    return failure.status();
  } catch (const std::bad_alloc&) {
    write_message(message, "the host ran out of memory");
    return GLM_OUT_OF_MEMORY;
  } catch (const std::exception& failure) {
    write_message(message, failure.what());
    return GLM_INTERNAL_ERROR;
  }
}

template <auto function, typename... Args>
glm_status silent(Args... args) {
  return guarded(nullptr, [&] { function(args...); });
}

template <auto function, typename... Args>
glm_status reported(Args... args, glm_message* message) {
  return guarded(message, [&] { function(args...); });
}

template <void (*check)(const glm_model_shape&)>
glm_status model_checked(const glm_model_shape* shape, glm_message* message) {
  return guarded(message, [&] {
    expect_pointer("check_model", "shape", shape);
    expect_equal("check_model", "struct_size", sizeof(glm_model_shape),
                 shape->struct_size);
    check(*shape);
  });
}

template <const glm_backend& table>
glm_status opened(uint32_t abi_version, const glm_backend** backend,
                  glm_message* message) {
  return guarded(message, [&] {
    expect_equal("glm_backend_open", "abi_version", GLM_BACKEND_ABI_VERSION,
                 abi_version);
    expect_pointer("glm_backend_open", "backend", backend);
    *backend = &table;
  });
}

}
