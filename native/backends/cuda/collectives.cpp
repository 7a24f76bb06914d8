#include "native/backends/cuda/checked.hpp"
#include "native/backends/cuda/lifecycle.hpp"
#include "native/base/failure.hpp"

namespace glm::cuda {
namespace {

using collectives::GatherArrays;

void copy_own(glm_device& device, const char* where,
              const collectives::GatherBlocks& blocks) {
  const int64_t bytes = blocks.num_rows * blocks.row_bytes;
  if (blocks.input == blocks.output) return;
  check_call(cwCudaMemcpyD2D(blocks.output, blocks.input, bytes,
                             wrapped(device.stream)),
             where);
}

void add_array(const char* where, GatherArrays& arrays,
               const collectives::GatherBlocks& blocks) {
  expect_range(where, "row_bytes", 0, INT64_MAX, blocks.row_bytes);
  if (blocks.num_rows * blocks.row_bytes == 0) return;
  expect_pointer(where, "input", blocks.input);
  expect_pointer(where, "output", blocks.output);
  arrays.at[arrays.count++] = blocks;
}

void exchange_arrays(glm_device& device, const char* where,
                     const GatherArrays& arrays) {
  if (device.peers == nullptr) {
    for (int32_t i = 0; i < arrays.count; ++i)
      copy_own(device, where, arrays.at[i]);
    return;
  }
  const collectives::Gather gather = device.peers->gather_of(where);
  if (!device.peers->shares_gpu())
    return collectives::gather(where, device.stream, gather, arrays);
  device.peers->meet_on_gpu(where);
  collectives::copy_to_ranks(where, device.stream, gather, arrays);
  device.peers->meet_on_gpu(where);
}

}

void all_gather(glm_device& device, const glm_all_gather_args& args) {
  const char* where = "all_gather";
  expect_range(where, "num_rows", 0, INT64_MAX, args.num_rows);
  expect_range(where, "num_arrays", 0, GLM_MAX_GATHERED, args.num_arrays);
  GatherArrays arrays = {};
  for (int32_t i = 0; i < args.num_arrays; ++i) {
    const glm_gathered& each = args.arrays[i];
    add_array(
        where, arrays,
        {static_cast<const char*>(each.input), static_cast<char*>(each.output),
         args.num_rows, args.num_rows, 0, each.row_bytes});
  }
  exchange_arrays(device, where, arrays);
}

void all_to_all(glm_device& device, const glm_all_to_all_args& args) {
  const char* where = "all_to_all";
  expect_range(where, "num_rows", 0, INT64_MAX, args.num_rows);
  const int64_t world_size =
      device.peers == nullptr ? 1 : device.peers->world_size();
  const int64_t block_rows = (args.num_rows + world_size - 1) / world_size;
  GatherArrays arrays = {};
  add_array(
      where, arrays,
      {static_cast<const char*>(args.input), static_cast<char*>(args.output),
       args.num_rows, block_rows, block_rows, args.row_bytes});
  exchange_arrays(device, where, arrays);
}

}
