#include "native/backends/cuda/checked.hpp"
#include "native/backends/cuda/lifecycle.hpp"
#include "native/base/failure.hpp"

namespace glm::cuda {
namespace {

using collectives::GatherBlocks;

void copy_own(glm_device& device, const char* where, void* output,
              const void* input, int64_t bytes) {
  if (input == output) return;
  check_call(cwCudaMemcpyD2D(output, input, bytes, wrapped(device.stream)),
             where);
}

void exchange_blocks(glm_device& device, const char* where, void* output,
                     const GatherBlocks& blocks) {
  const int64_t bytes = blocks.num_rows * blocks.row_bytes;
  if (bytes == 0) return;
  expect_pointer(where, "input", blocks.input);
  expect_pointer(where, "output", output);
  if (device.peers == nullptr)
    return copy_own(device, where, output, blocks.input, bytes);
  const collectives::Gather gather = device.peers->gather_of(where, output);
  if (!device.peers->shares_gpu())
    return collectives::gather(where, device.stream, gather, blocks);
  device.peers->meet_on_gpu(where);
  collectives::copy_to_ranks(where, device.stream, gather, blocks);
  device.peers->meet_on_gpu(where);
}

}

void all_gather(glm_device& device, const glm_all_gather_args& args) {
  const char* where = "all_gather";
  expect_range(where, "num_rows", 0, INT64_MAX, args.num_rows);
  expect_range(where, "row_bytes", 0, INT64_MAX, args.row_bytes);
  exchange_blocks(device, where, args.output,
                  {static_cast<const char*>(args.input), args.num_rows,
                   args.num_rows, 0, args.row_bytes});
}

void all_to_all(glm_device& device, const glm_all_to_all_args& args) {
  const char* where = "all_to_all";
  expect_range(where, "num_rows", 0, INT64_MAX, args.num_rows);
  expect_range(where, "row_bytes", 0, INT64_MAX, args.row_bytes);
  const int64_t world_size =
      device.peers == nullptr ? 1 : device.peers->world_size();
  const int64_t block_rows = (args.num_rows + world_size - 1) / world_size;
  exchange_blocks(device, where, args.output,
                  {static_cast<const char*>(args.input), args.num_rows,
                   block_rows, block_rows, args.row_bytes});
}

}
