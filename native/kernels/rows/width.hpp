#pragma once

#include <cstdint>
#include <string>

#include "native/base/failure.hpp"

namespace glm::kernels::rows {

constexpr int32_t kChunkElements = 8;
constexpr int32_t kMaxThreads = 1024;
constexpr int32_t kMaxChunks = 8;
constexpr int32_t kMaxReducedChunks = 2;
constexpr int32_t kMaxWidth = kMaxThreads * kMaxChunks * kChunkElements;
constexpr int32_t kMaxReducedWidth =
    kMaxThreads * kMaxReducedChunks * kChunkElements;

inline void expect_width(const char* where, int64_t width) {
  if (width > kMaxWidth)
    throw Failure(GLM_NOT_SUPPORTED, std::string(where) +
                                         ": width: expected at most " +
                                         std::to_string(kMaxWidth) + ", got " +
                                         std::to_string(width));
}

}
