#include "native/kernels/stream/token_map.hpp"

#include <cuda_runtime.h>

#include <string>

#include "native/base/cuda.hpp"

namespace glm::kernels::stream {

namespace {

constexpr unsigned kDriverVersion = 12000;

using EncodeTiled = decltype(&cuTensorMapEncodeTiled);

EncodeTiled find_encode(const char* where) {
  void* address = nullptr;
  cudaDriverEntryPointQueryResult found;
  check(cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &address,
                                         kDriverVersion, cudaEnableDefault,
                                         &found),
        where);
  if (found != cudaDriverEntryPointSuccess || address == nullptr) {
    throw Failure(GLM_DEVICE_ERROR,
                  std::string(where) +
                      ": expected a driver with cuTensorMapEncodeTiled, got "
                      "one without it");
  }
  return reinterpret_cast<EncodeTiled>(address);
}

}

bool allows_token_map(const TokenRows& tokens) {
  return tokens.row_bytes % kChunkBytes == 0 &&
         reinterpret_cast<uintptr_t>(tokens.data) % kChunkBytes == 0;
}

CUtensorMap token_map(const char* where, const TokenRows& tokens,
                      int32_t columns) {
  static const EncodeTiled encode = find_encode(where);
  const cuuint64_t sizes[2] = {static_cast<cuuint64_t>(tokens.row_bytes),
                               static_cast<cuuint64_t>(tokens.num_rows)};
  const cuuint64_t strides[1] = {static_cast<cuuint64_t>(tokens.row_bytes)};
  const cuuint32_t box[2] = {kTileRowBytes, static_cast<cuuint32_t>(columns)};
  const cuuint32_t steps[2] = {1, 1};
  CUtensorMap map;
  CUresult result = encode(
      &map, CU_TENSOR_MAP_DATA_TYPE_UINT8, 2, const_cast<uint8_t*>(tokens.data),
      sizes, strides, box, steps, CU_TENSOR_MAP_INTERLEAVE_NONE,
      CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_128B,
      CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  if (result != CUDA_SUCCESS) {
    throw Failure(GLM_DEVICE_ERROR,
                  std::string(where) +
                      ": tensor map of the input: expected CUDA_SUCCESS (0), "
                      "got " +
                      std::to_string(static_cast<int>(result)));
  }
  return map;
}

}
