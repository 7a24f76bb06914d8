#include "native/backends/cuda/checked.hpp"
#include "native/backends/cuda/lifecycle.hpp"
#include "native/base/failure.hpp"

namespace glm::cuda {
namespace {

void copy_own(glm_device& device, const char* where, void* output,
              const void* input, int64_t bytes) {
  if (bytes == 0) return;
  expect_pointer(where, "input", input);
  expect_pointer(where, "output", output);
  if (input == output) return;
  check_call(cwCudaMemcpyD2D(output, input, bytes, wrapped(device.stream)),
             where);
}

}

void all_reduce(glm_device&, const glm_all_reduce_args& args) {
  const char* where = "all_reduce";
  expect_range(where, "count", 0, INT64_MAX, args.count);
  expect_range(where, "dtype", GLM_DTYPE_F32, GLM_DTYPE_BF16, args.dtype);
  if (args.count > 0) expect_pointer(where, "data", args.data);
}

void all_gather(glm_device& device, const glm_all_gather_args& args) {
  const char* where = "all_gather";
  expect_range(where, "num_rows", 0, INT64_MAX, args.num_rows);
  expect_range(where, "row_bytes", 0, INT64_MAX, args.row_bytes);
  copy_own(device, where, args.output, args.input,
           args.num_rows * args.row_bytes);
}

void all_to_all(glm_device& device, const glm_all_to_all_args& args) {
  const char* where = "all_to_all";
  expect_range(where, "block_bytes", 0, INT64_MAX, args.block_bytes);
  copy_own(device, where, args.output, args.input, args.block_bytes);
}

}
