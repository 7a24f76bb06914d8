#pragma once

#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <cstdint>

#include "native/collectives/peer/peer_rows.hpp"
#include "native/kernels/experts/control.hpp"
#include "native/kernels/layout.hpp"
#include "native/kernels/local_experts.hpp"

namespace glm::kernels::mixture {

struct StreamedMatrix {
  const uint8_t* data;
  const float* row_scale;
  int64_t stride;
  int64_t scale_stride;
  int32_t num_packed_rows;
  int32_t num_row_units;
  int32_t num_column_tiles;

  void set_row_units(int32_t rows) {
    num_row_units = static_cast<int32_t>(ceil_divide(num_packed_rows, rows));
  }
};

struct ExpertMatrices {
  StreamedMatrix gate_up;
  StreamedMatrix down;
  int32_t width;
};

struct TokenSource {
  const uint8_t* data;
  int64_t row_stride;
  int32_t row_bytes;
  uint64_t row_factor;

  __device__ uint32_t row_of(uint32_t assignment) const {
    return static_cast<uint32_t>(assignment * row_factor >> 32);
  }
};

constexpr uint64_t row_factor(int32_t assignments_per_row) {
  return ((uint64_t{1} << 32) + assignments_per_row - 1) / assignments_per_row;
}

struct ExpertsParameters {
  int32_t num_tokens;
  int32_t top_k;
  LocalExperts local;
  int32_t num_experts;
  int32_t hidden_size;
  int32_t hidden_stride;
  int32_t partial_stride;
  int32_t tokens_per_group;
  int32_t num_groups;
  int32_t rows_per_band;
  int32_t rows_per_combine;
  int32_t num_bands;
  int32_t num_stages;
  int32_t num_in_flight;
  bool discards_rows;
  bool shares_last_combine;
  const int32_t* expert_ids;
  const float* expert_weights;
  const float* input_scale;
  ExpertMatrices routed;
  ExpertMatrices shared;
  TokenSource input;
  TokenSource encoded;
  float* hidden;
  uint8_t* codes;
  float* code_scale;
  float* partial;
  Control* control;
  const __nv_bfloat16* initial;
  __nv_bfloat16* output;
  collectives::PeerRows peers;

  __device__ ExpertMatrices of_expert(int32_t expert) const {
    return expert == local.shared_index ? shared : routed;
  }
  __host__ __device__ int32_t num_assignments() const {
    return num_tokens * top_k;
  }
};

void launch_experts(cudaStream_t stream, int32_t num_multiprocessors,
                    int32_t dtype, const ExpertsParameters& parameters);

struct PadRows {
  const uint8_t* source;
  uint8_t* destination;
  int64_t num_rows;
  int32_t row_bytes;
  int32_t padded_bytes;
};

void launch_pad_rows(cudaStream_t stream, const PadRows& rows);

}
