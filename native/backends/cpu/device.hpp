#pragma once

#include <cstdint>

#include "glm/backend.h"
#include "kernels_cpu.h"
#include "native/collectives/threads/rank_group.hpp"

struct glm_group {
  explicit glm_group(int32_t world_size) : ranks(world_size) {}
  glm::RankGroup ranks;
};

struct glm_device {
  futhark_context_config* config = nullptr;
  futhark_context* context = nullptr;
  glm_group* group = nullptr;
  int32_t rank = 0;
  int32_t world_size = 1;
  glm_message message = {};
};

namespace glm::cpu {

constexpr int64_t kAlignment = 64;
constexpr int32_t kFewestScatteredRows = 16;
constexpr int64_t kPanelColumns = 64;

int64_t element_bytes(const char* where, int32_t dtype);
int64_t num_panels(int64_t rows);

void set_memory_info(glm_device_info* info);
void set_processor_name(glm_device_info* info);

}
