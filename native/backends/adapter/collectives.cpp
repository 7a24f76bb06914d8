#include <algorithm>
#include <string>
#include <vector>

#include "device.hpp"
#include "host_view.hpp"
#include "lifecycle.hpp"
#include "native/base/failure.hpp"
#include "operations.hpp"

namespace glm::adapter {
namespace {

void finish(const char* where, glm_status status, const std::string& problem) {
  if (status != GLM_OK)
    throw Failure(status, std::string(where) + ": " + problem);
}

RankGroup* group_of(glm_device& device, const char* where) {
  if (device.group != nullptr) return &device.group->ranks;
  expect_equal(where, "world_size without a group", 1, device.world_size);
  return nullptr;
}

void gather_array(glm_device& device, const char* where, int64_t num_rows,
                  const glm_gathered& array) {
  RankGroup* group = group_of(device, where);
  RankGroup alone(1);
  std::string problem;
  const int64_t bytes = num_rows * array.row_bytes;
  HostView<const char> input(where, static_cast<const char*>(array.input),
                             bytes);
  HostView<char> output(where, static_cast<char*>(array.output),
                        bytes * device.world_size);
  const glm_status status =
      (group == nullptr ? &alone : group)
          ->all_gather(device.rank, num_rows,
                       {array.row_bytes, input.data(), output.data()},
                       &problem);
  finish(where, status, problem);
  output.write();
}

}

void group_bind(glm_device& device, void* memory, int64_t bytes) {
  const char* where = "group_bind";
  expect_range(where, "bytes", 0, INT64_MAX, bytes);
  if (bytes > 0) expect_pointer(where, "memory", memory);
  std::vector<void*> memories(static_cast<size_t>(device.world_size));
  all_gather(device, {1, 1, {{sizeof memory, &memory, memories.data()}}});
}

void reduce(glm_device& device, const char* where, float* data, int64_t count) {
  RankGroup* group = group_of(device, where);
  if (group == nullptr) return;
  std::string problem;
  HostView<float> view(where, data, count);
  const glm_status status =
      group->all_reduce(device.rank, view.data(), count, &problem);
  finish(where, status, problem);
  view.write();
}

void all_gather(glm_device& device, const glm_all_gather_args& args) {
  const char* where = "all_gather";
  expect_range(where, "num_rows", 0, INT64_MAX, args.num_rows);
  expect_range(where, "num_arrays", 0, GLM_MAX_GATHERED, args.num_arrays);
  for (int32_t i = 0; i < args.num_arrays; ++i) {
    const glm_gathered& array = args.arrays[i];
    expect_range(where, "row_bytes", 0, INT64_MAX, array.row_bytes);
    if (args.num_rows > 0 && array.row_bytes > 0) {
      expect_pointer(where, "input", array.input);
      expect_pointer(where, "output", array.output);
    }
    gather_array(device, where, args.num_rows, array);
  }
  if (args.num_arrays == 0) gather_array(device, where, 0, {});
}

void all_to_all(glm_device& device, const glm_all_to_all_args& args) {
  const char* where = "all_to_all";
  expect_range(where, "num_rows", 0, INT64_MAX, args.num_rows);
  expect_range(where, "row_bytes", 0, INT64_MAX, args.row_bytes);
  if (args.num_rows > 0 && args.row_bytes > 0) {
    expect_pointer(where, "input", args.input);
    expect_pointer(where, "output", args.output);
  }
  RankGroup* group = group_of(device, where);
  std::string problem;
  RankGroup alone(1);
  const int64_t block_rows =
      (args.num_rows + device.world_size - 1) / device.world_size;
  const int64_t begin = std::min(device.rank * block_rows, args.num_rows);
  const int64_t own_rows = std::min(block_rows, args.num_rows - begin);
  HostView<const char> input(where, static_cast<const char*>(args.input),
                             args.num_rows * args.row_bytes);
  HostView<char> output(where, static_cast<char*>(args.output),
                        own_rows * args.row_bytes * device.world_size);
  glm_all_to_all_args on_host = args;
  on_host.input = input.data();
  on_host.output = output.data();
  const glm_status status = (group == nullptr ? &alone : group)
                                ->all_to_all(device.rank, on_host, &problem);
  finish(where, status, problem);
  output.write();
}

}
