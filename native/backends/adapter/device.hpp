#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "glm/backend.h"
#include "native/collectives/threads/rank_group.hpp"
#include "program.hpp"

struct glm_group {
  explicit glm_group(std::vector<int32_t> each_device)
      : ranks(static_cast<int32_t>(each_device.size())),
        devices(std::move(each_device)) {}
  glm::RankGroup ranks;
  const std::vector<int32_t> devices;
};

struct glm_device {
  futhark_context_config* config = nullptr;
  futhark_context* context = nullptr;
  glm_group* group = nullptr;
  int32_t rank = 0;
  int32_t world_size = 1;
  int32_t ordinal = 0;
  void* native_context = nullptr;
  bool is_lost = false;
  glm_message message = {};
};

namespace glm::adapter {

constexpr int32_t kFewestScatteredRows = 16;
constexpr int64_t kPanelColumns = 64;

int64_t element_bytes(const char* where, int32_t dtype);
int64_t num_panels(int64_t rows);

}
