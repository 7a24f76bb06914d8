#include "native/kernels/rows/tensor_map.hpp"

#include <dlfcn.h>

#include <string>

#include "native/base/cuda.hpp"

namespace glm::kernels {
namespace {

using EncodeTiled = decltype(&cuTensorMapEncodeTiled);

EncodeTiled find_encode(const char* where) {
  void* driver = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD);
  void* address =
      driver == nullptr ? nullptr : dlsym(driver, "cuTensorMapEncodeTiled");
  if (address == nullptr)
    throw Failure(GLM_DEVICE_ERROR,
                  std::string(where) +
                      ": expected a driver with cuTensorMapEncodeTiled, got "
                      "one without it");
  return reinterpret_cast<EncodeTiled>(address);
}

}

CUtensorMap tensor_map(const char* where, const RowBoxes& boxes) {
  static const EncodeTiled encode = find_encode(where);
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
