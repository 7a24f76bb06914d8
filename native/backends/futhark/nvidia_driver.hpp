#pragma once

#include <cuda.h>

#include <cstdint>

namespace glm::adapter {

void check_driver(const char* where, CUresult result);
void expect_recent_driver();
int32_t capability(int32_t ordinal);

}
