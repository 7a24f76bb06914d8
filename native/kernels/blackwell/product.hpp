#pragma once

#include <cstdint>

#include "native/kernels/context.hpp"
#include "native/kernels/layout.hpp"

namespace glm::kernels::blackwell {

constexpr int32_t kMaxGroups = 1024;

struct Product {
  int32_t dtype = GLM_DTYPE_BF16;
  int32_t output_dtype = GLM_DTYPE_BF16;
  const uint8_t* weights = nullptr;
  int64_t weight_pitch = 0;
  int64_t expert_stride = 0;
  const float* channel_scale = nullptr;
  int64_t channel_scale_stride = 0;
  const float* bias = nullptr;
  const uint8_t* tokens = nullptr;
  int64_t token_pitch = 0;
  const float* token_scale = nullptr;
  const int32_t* expert_begin = nullptr;
  int32_t num_groups = 1;
  int32_t num_tokens = 0;
  int32_t rows = 0;
  int32_t columns = 0;
  void* output = nullptr;
  int64_t output_pitch = 0;
};

struct GroupShape {
  int32_t rows;
  int32_t num_tokens;
  int32_t columns;
};

struct Groups {
  GroupShape* shape = nullptr;
  const void** weights = nullptr;
  int64_t* weight_pitch = nullptr;
  const void** tokens = nullptr;
  int64_t* token_pitch = nullptr;
  void** output = nullptr;
  int64_t* output_pitch = nullptr;
  const float** channel_scale = nullptr;
  const float** token_scale = nullptr;
  const float** bias = nullptr;
  uint8_t* workspace = nullptr;
  int64_t workspace_bytes = 0;
};

Product describe(const glm_matrix& matrix);
bool is_aligned(const Product& product);
void multiply(const Context& context, const Product& product,
              const Scratch& scratch);

void list_groups(const Context& context, const Product& product,
                 const Groups& groups);
void multiply_directly(const Context& context, const Product& product);

void product_fp8_bf16(const Context& context, const Product& product,
                      const Groups& groups);
void product_fp8_f32(const Context& context, const Product& product,
                     const Groups& groups);
void product_bf16_bf16(const Context& context, const Product& product,
                       const Groups& groups);
void product_bf16_f32(const Context& context, const Product& product,
                      const Groups& groups);

}
