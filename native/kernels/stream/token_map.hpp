#pragma once

#include <cuda.h>

#include <cstdint>

#include "native/kernels/stream/product_args.hpp"

namespace glm::kernels::stream {

bool allows_token_map(const TokenRows& tokens);

CUtensorMap token_map(const char* where, const TokenRows& tokens,
                      int32_t columns);

}
