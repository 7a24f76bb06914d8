#include <cuda.h>
#include <cuda_runtime.h>

#include "native/base/cuda.hpp"
#include "native/kernels/prefill/product.hpp"

namespace glm::kernels::prefill {
namespace {

constexpr unsigned kDriverVersion = 12000;

using EncodeTiled = decltype(&cuTensorMapEncodeTiled);

EncodeTiled encode_tiled() {
  void* address = nullptr;
  cudaDriverEntryPointQueryResult found;
  check(cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &address,
                                         kDriverVersion, cudaEnableDefault,
                                         &found),
        "cuTensorMapEncodeTiled");
  if (found != cudaDriverEntryPointSuccess || address == nullptr)
    throw Failure(GLM_DEVICE_ERROR,
                  "prefill: expected a driver with cuTensorMapEncodeTiled, "
                  "got one without it");
  return reinterpret_cast<EncodeTiled>(address);
}

}

CUtensorMap tokens_map(const char* where, const void* data, int32_t dtype,
                       int64_t num_tokens, int64_t columns,
                       int64_t stride_bytes) {
  static const EncodeTiled encode = encode_tiled();
  const bool is_bf16 = dtype == GLM_DTYPE_BF16;
  const cuuint64_t sizes[2] = {static_cast<cuuint64_t>(columns),
                               static_cast<cuuint64_t>(num_tokens)};
  const cuuint64_t strides[1] = {static_cast<cuuint64_t>(stride_bytes)};
  const cuuint32_t box[2] = {
      static_cast<cuuint32_t>(kTileRowBytes / dtype_bytes(dtype)),
      static_cast<cuuint32_t>(kSliceTokens)};
  const cuuint32_t steps[2] = {1, 1};
  CUtensorMap map;
  const CUresult result = encode(
      &map,
      is_bf16 ? CU_TENSOR_MAP_DATA_TYPE_BFLOAT16
              : CU_TENSOR_MAP_DATA_TYPE_UINT8,
      2, const_cast<void*>(data), sizes, strides, box, steps,
      CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
      CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  if (result != CUDA_SUCCESS)
    throw Failure(GLM_DEVICE_ERROR,
                  std::string(where) +
                      ": tensor map of the tokens: expected CUDA_SUCCESS (0), "
                      "got " +
                      std::to_string(static_cast<int>(result)));
  return map;
}

Product describe(const glm_matrix& matrix) {
  Product product;
  product.weights = static_cast<const uint8_t*>(matrix.data);
  product.channel_scale =
      matrix.dtype == GLM_DTYPE_F8_E4M3 ? matrix.row_scale : nullptr;
  product.bias = matrix.bias;
  product.role = matrix.role;
  product.rows = matrix.rows;
  product.num_row_tiles = num_row_tiles(matrix.role, matrix.rows);
  product.num_column_tiles = num_column_tiles(matrix.dtype, matrix.columns);
  return product;
}

int32_t tile_tokens_of(int32_t num_clusters, int32_t num_row_tiles,
                       int32_t num_tokens) {
  const int64_t pairs = ceil_divide(num_row_tiles, kClusterSize);
  int32_t tokens = kTileTokens;
  while (tokens > kSmallTileTokens &&
         pairs * ceil_divide(num_tokens, tokens) < num_clusters)
    tokens /= 2;
  return tokens;
}

int32_t expert_tile_tokens_of(int32_t num_choices, int32_t num_experts) {
  int32_t tokens = kTileTokens;
  while (tokens > kSmallTileTokens &&
         4 * int64_t{num_choices} < int64_t{3} * num_experts * tokens / 2)
    tokens /= 2;
  return tokens;
}

}
