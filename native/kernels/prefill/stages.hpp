#pragma once

#include <cstdint>

#include "glm/backend.h"
#include "native/collectives/peer/peer_rows.hpp"
#include "native/kernels/context.hpp"
#include "native/kernels/local_experts.hpp"

namespace glm::kernels::prefill {

struct Sorting {
  int32_t num_choices = 0;
  LocalExperts local;
  int32_t num_experts = 0;
  const int32_t* expert_ids = nullptr;
  int32_t* begin = nullptr;
  int32_t* position = nullptr;
};

struct Gathering {
  int32_t num_tokens = 0;
  int32_t top_k = 0;
  int64_t row_bytes = 0;
  int64_t stride_bytes = 0;
  const uint8_t* rows = nullptr;
  const float* row_scale = nullptr;
  const int32_t* position = nullptr;
  uint8_t* gathered = nullptr;
  float* gathered_scale = nullptr;
};

struct Quantising {
  int32_t width = 0;
  int32_t shared_width = 0;
  int32_t stride = 0;
  int32_t num_routed = 0;
  int32_t num_experts = 0;
  const int32_t* begin = nullptr;
  const float* hidden = nullptr;
  uint8_t* codes = nullptr;
  float* row_scale = nullptr;
};

struct Combining {
  int32_t num_tokens = 0;
  int32_t top_k = 0;
  int32_t width = 0;
  int32_t stride = 0;
  const int32_t* position = nullptr;
  const float* weights = nullptr;
  const void* products = nullptr;
  const void* initial = nullptr;
  void* output = nullptr;
  collectives::PeerRows peers = {};
};

void sort_choices(const Context& context, const Sorting& sorting);
void gather_rows(const Context& context, const Gathering& gathering);
void quantise_hidden(const Context& context, const Quantising& quantising);
void combine_rows(const Context& context, const Combining& combining);

}
