#pragma once

#include <cstdint>

namespace glm::adapter {

constexpr int64_t kAlignment = 64;

void* allocate_host(int64_t bytes);
void release_host(void* memory);

}
