#define GLM_CUBLASWRAP_IMPLEMENTATION
extern "C" {
#include "glm/cublaswrap.h"

#include "glm/backend.h"
}

#include <cublasLt.h>

#include "native/base/call_report.hpp"

namespace {

glm_status status_of(cublasStatus_t result) {
  switch (result) {
    case CUBLAS_STATUS_SUCCESS:
      return GLM_OK;
    case CUBLAS_STATUS_ALLOC_FAILED:
      return GLM_OUT_OF_MEMORY;
    case CUBLAS_STATUS_INVALID_VALUE:
      return GLM_INVALID_ARGUMENT;
    case CUBLAS_STATUS_NOT_SUPPORTED:
    case CUBLAS_STATUS_ARCH_MISMATCH:
      return GLM_NOT_SUPPORTED;
    default:
      return GLM_DEVICE_ERROR;
  }
}

glm_status report(const char* call, cublasStatus_t result) {
  return glm::report(
      call, {status_of(result), static_cast<int>(result),
             cublasLtGetStatusName(result), cublasLtGetStatusString(result)});
}

cudaDataType_t native_type(int32_t dtype) {
  switch (dtype) {
    case GLM_DTYPE_BF16:
      return CUDA_R_16BF;
    case GLM_DTYPE_F8_E4M3:
      return CUDA_R_8F_E4M3;
    default:
      return CUDA_R_32F;
  }
}

class Gemm {
 public:
  explicit Gemm(const cw_gemm_args& args) : args_(args) {}
  Gemm(const Gemm&) = delete;
  Gemm& operator=(const Gemm&) = delete;

  ~Gemm() {
    if (preference_ != nullptr) cublasLtMatmulPreferenceDestroy(preference_);
    for (cublasLtMatrixLayout_t layout : {weights_, tokens_, output_})
      if (layout != nullptr) cublasLtMatrixLayoutDestroy(layout);
    if (product_ != nullptr) cublasLtMatmulDescDestroy(product_);
  }

  cublasStatus_t run(cublasLtHandle_t handle) {
    describe_product();
    describe_layouts();
    choose_algorithm(handle);
    if (status_ != CUBLAS_STATUS_SUCCESS) return status_;
    const float one = 1, zero = 0;
    return cublasLtMatmul(handle, product_, &one, args_.right, weights_,
                          args_.left, tokens_, &zero, args_.output, output_,
                          args_.output, output_, &found_.algo, args_.workspace,
                          static_cast<size_t>(args_.workspace_bytes),
                          static_cast<cudaStream_t>(args_.stream));
  }

 private:
  void keep(cublasStatus_t status) {
    if (status_ == CUBLAS_STATUS_SUCCESS) status_ = status;
  }

  template <typename Value>
  void set(cublasLtMatmulDescAttributes_t name, const Value& value) {
    if (status_ == CUBLAS_STATUS_SUCCESS)
      keep(
          cublasLtMatmulDescSetAttribute(product_, name, &value, sizeof value));
  }

  void describe_product() {
    keep(cublasLtMatmulDescCreate(&product_, CUBLAS_COMPUTE_32F, CUDA_R_32F));
    set(CUBLASLT_MATMUL_DESC_TRANSA, CUBLAS_OP_T);
    set(CUBLASLT_MATMUL_DESC_TRANSB, CUBLAS_OP_N);
    if (args_.right_scale != nullptr)
      set(CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, args_.right_scale);
    if (args_.left_scale != nullptr)
      set(CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, args_.left_scale);
  }

  void describe(cublasLtMatrixLayout_t* layout, int32_t dtype, int32_t rows,
                int32_t columns) {
    keep(cublasLtMatrixLayoutCreate(layout, native_type(dtype),
                                    static_cast<uint64_t>(rows),
                                    static_cast<uint64_t>(columns), rows));
  }

  void describe_layouts() {
    describe(&weights_, args_.input_dtype, args_.depth, args_.num_columns);
    describe(&tokens_, args_.input_dtype, args_.depth, args_.num_rows);
    describe(&output_, args_.output_dtype, args_.num_columns, args_.num_rows);
  }

  void choose_algorithm(cublasLtHandle_t handle) {
    keep(cublasLtMatmulPreferenceCreate(&preference_));
    if (status_ != CUBLAS_STATUS_SUCCESS) return;
    const size_t bytes = static_cast<size_t>(args_.workspace_bytes);
    keep(cublasLtMatmulPreferenceSetAttribute(
        preference_, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &bytes,
        sizeof bytes));
    if (status_ != CUBLAS_STATUS_SUCCESS) return;
    int count = 0;
    keep(cublasLtMatmulAlgoGetHeuristic(handle, product_, weights_, tokens_,
                                        output_, output_, preference_, 1,
                                        &found_, &count));
    if (count == 0) keep(CUBLAS_STATUS_NOT_SUPPORTED);
  }

  const cw_gemm_args& args_;
  cublasStatus_t status_ = CUBLAS_STATUS_SUCCESS;
  cublasLtMatmulDesc_t product_ = nullptr;
  cublasLtMatrixLayout_t weights_ = nullptr;
  cublasLtMatrixLayout_t tokens_ = nullptr;
  cublasLtMatrixLayout_t output_ = nullptr;
  cublasLtMatmulPreference_t preference_ = nullptr;
  cublasLtMatmulHeuristicResult_t found_ = {};
};

const char* problem_of(const cw_gemm_args* args) {
  if (args == nullptr) return "args is null";
  if (args->struct_size != sizeof(cw_gemm_args))
    return "struct_size: expected the size of cw_gemm_args";
  if (args->num_rows < 1 || args->num_columns < 1 || args->depth < 1)
    return "num_rows, num_columns, depth: expected 1 or more";
  if (args->input_dtype < GLM_DTYPE_F32 ||
      args->input_dtype > GLM_DTYPE_F8_E4M3)
    return "input_dtype: expected F32 (0), BF16 (1) or F8_E4M3 (2)";
  if (args->output_dtype != GLM_DTYPE_F32 &&
      args->output_dtype != GLM_DTYPE_BF16)
    return "output_dtype: expected F32 (0) or BF16 (1)";
  if (args->left == nullptr || args->right == nullptr ||
      args->output == nullptr)
    return "left, right or output is null";
  if (args->workspace_bytes < 0) return "workspace_bytes: expected 0 or more";
  return nullptr;
}

}

extern "C" {

void cwCublasLastMessage(glm_message* message) {
  glm::copy_last_message(message);
}

glm_status cwCublasLtCreate(cw_cublaslt** handle) {
  const char* call = "cwCublasLtCreate";
  if (handle == nullptr) return glm::report_argument(call, "handle is null");
  return report(call,
                cublasLtCreate(reinterpret_cast<cublasLtHandle_t*>(handle)));
}

glm_status cwCublasLtDestroy(cw_cublaslt* handle) {
  return report("cwCublasLtDestroy",
                cublasLtDestroy(reinterpret_cast<cublasLtHandle_t>(handle)));
}

glm_status cwCublasLtGemm(cw_cublaslt* handle, const cw_gemm_args* args) {
  const char* call = "cwCublasLtGemm";
  const char* problem = problem_of(args);
  if (problem != nullptr) return glm::report_argument(call, problem);
  return report(call,
                Gemm(*args).run(reinterpret_cast<cublasLtHandle_t>(handle)));
}
}
