#pragma once

#include "native/kernels/context.hpp"

namespace glm::kernels {

struct StagedFloats {
  const void* data = nullptr;
  int32_t dtype = GLM_DTYPE_F32;
  int32_t count = 0;
  float* destination = nullptr;
};

struct StagedRows {
  glm_matrix matrix = {};
  int32_t row_begin = 0;
  int32_t num_rows = 0;
  const void* data = nullptr;
  int64_t row_pitch = 0;
};

void expect_matrix(const char* where, const glm_matrix& matrix);
void clear_padding(const Context& context, const glm_matrix& matrix);
void pack_tiles(const Context& context, const StagedRows& rows);
void pack_rows(const Context& context, const StagedRows& rows);
void widen_floats(const Context& context, const StagedFloats& floats);
void place_random(const Context& context, const glm_place_random_args& args);
void rope_table(const Context& context, const glm_rope_table_args& args);

}
