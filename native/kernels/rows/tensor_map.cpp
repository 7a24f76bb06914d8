#include "native/kernels/rows/tensor_map.hpp"

#include <string>

#include "native/base/driver.hpp"
#include "native/base/failure.hpp"

namespace glm::kernels {

CUtensorMap tensor_map(const char* where, const RowBoxes& boxes) {
  static const auto encode = driver_function<decltype(&cuTensorMapEncodeTiled)>(
      where, "cuTensorMapEncodeTiled");
  const cuuint64_t sizes[2] = {static_cast<cuuint64_t>(boxes.columns),
                               static_cast<cuuint64_t>(boxes.num_rows)};
  const cuuint64_t strides[1] = {static_cast<cuuint64_t>(boxes.stride_bytes)};
  const cuuint32_t box[2] = {static_cast<cuuint32_t>(boxes.box_columns),
                             static_cast<cuuint32_t>(boxes.box_rows)};
  const cuuint32_t steps[2] = {1, 1};
  CUtensorMap map;
  const CUresult result = encode(
      &map, boxes.element, 2, const_cast<void*>(boxes.data), sizes, strides,
      box, steps, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
      boxes.promotion, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  if (result != CUDA_SUCCESS)
    throw Failure(GLM_DEVICE_ERROR,
                  std::string(where) +
                      ": tensor map of the rows: expected CUDA_SUCCESS (0), "
                      "got " +
                      std::to_string(static_cast<int>(result)));
  return map;
}

}
