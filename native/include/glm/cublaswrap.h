#ifndef GLM_CUBLASWRAP_H
#define GLM_CUBLASWRAP_H

#include <stdint.h>

#include "status.h"

#if defined(GLM_CUBLASWRAP_IMPLEMENTATION)
#define GLM_CUBLASWRAP_EXPORT __attribute__((visibility("default")))
#else
#define GLM_CUBLASWRAP_EXPORT
#endif

typedef struct cw_cublaslt cw_cublaslt;

typedef struct cw_gemm_args {
  uint32_t struct_size;
  int32_t num_rows;
  int32_t num_columns;
  int32_t depth;
  int32_t input_dtype;
  int32_t output_dtype;
  const void* left;
  const void* right;
  const float* left_scale;
  const float* right_scale;
  void* output;
  void* workspace;
  int64_t workspace_bytes;
  void* stream;
} cw_gemm_args;

GLM_CUBLASWRAP_EXPORT void cwCublasLastMessage(glm_message* message);

GLM_CUBLASWRAP_EXPORT glm_status cwCublasLtCreate(cw_cublaslt** handle);
GLM_CUBLASWRAP_EXPORT glm_status cwCublasLtDestroy(cw_cublaslt* handle);
GLM_CUBLASWRAP_EXPORT glm_status cwCublasLtGemm(cw_cublaslt* handle,
                                                const cw_gemm_args* args);

#endif
