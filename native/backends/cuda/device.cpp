#include "native/backends/cuda/device.hpp"

#include <algorithm>
#include <cstdio>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "native/backends/cuda/checked.hpp"
#include "native/backends/cuda/lifecycle.hpp"
#include "native/backends/cuda/plan/plan.hpp"
#include "native/base/cuda.hpp"
#include "native/base/failure.hpp"

namespace glm::cuda {
namespace {

constexpr int32_t kMeasuredMajor = 9;
constexpr int32_t kNeverRunMajor = 10;
constexpr size_t kLongestName = 60;
constexpr char kNeverRun[] =
    " (compute capability 10.0: kernels compiled but never run)";

[[noreturn]] void refuse(const std::string& text) {
  throw Failure(GLM_NOT_SUPPORTED, "device cuda: " + text);
}

std::string version_text(int32_t version) {
  return std::to_string(version / 1000) + "." +
         std::to_string(version % 1000 / 10);
}

void expect_driver() {
  int32_t driver = 0, runtime = 0;
  check(cudaDriverGetVersion(&driver), "device cuda: driver version");
  check(cudaRuntimeGetVersion(&runtime), "device cuda: runtime version");
  if (driver == 0)
    refuse("no NVIDIA driver found; install one, or use device cpu");
  if (driver / 1000 < runtime / 1000)
    refuse("expected an NVIDIA driver for CUDA " + version_text(runtime) +
           " or newer, got one for CUDA " + version_text(driver));
}

void expect_capability(const cudaDeviceProp& properties) {
  for (const int32_t major : {kMeasuredMajor, kNeverRunMajor})
    if (properties.major == major && properties.minor == 0) return;
  refuse("expected a GPU of compute capability 9.0 or 10.0, got " +
         std::to_string(properties.major) + "." +
         std::to_string(properties.minor) + " (" + properties.name + ")");
}

void expect_options(const glm_device_options& options) {
  const char* where = "device_open";
  expect_equal(where, "struct_size", sizeof(glm_device_options),
               options.struct_size);
  expect_range(where, "world_size", 1, INT32_MAX, options.world_size);
  expect_range(where, "rank", 0, options.world_size - 1, options.rank);
  expect_range(where, "num_threads", 0, 4096, options.num_threads);
  expect_equal(where,
               options.group != nullptr ? "world_size with this group"
                                        : "world_size without a group",
               options.group != nullptr ? options.group->peers.world_size() : 1,
               options.world_size);
}

void choose(int32_t ordinal) {
  check(cudaSetDevice(ordinal), "device cuda");
  check_call(cwCudaSetDevice(ordinal), "device cuda");
}

bool shares_stream(const glm_device& device) {
  return device.peers != nullptr && device.peers->shares_gpu();
}

void close(glm_device* device) {
  cudaSetDevice(device->ordinal);
  device->staging.reset();
  if (device->stream != nullptr && !shares_stream(*device))
    cwCudaStreamDestroy(wrapped(device->stream));
  delete device;
}

cudaStream_t stream_of(const glm_device& device) {
  if (shares_stream(device)) return device.peers->group().common_stream();
  cw_stream* stream = nullptr;
  check_call(cwCudaStreamCreate(&stream), "device_open");
  return reinterpret_cast<cudaStream_t>(stream);
}

cudaDeviceProp properties_of(int32_t ordinal) {
  cudaDeviceProp properties = {};
  check(cudaGetDeviceProperties(&properties, ordinal), "device cuda");
  return properties;
}

}

void use(glm_device& device) {
  if (device.is_lost)
    throw Failure(GLM_DEVICE_ERROR, "the device is lost: " + device.loss);
  choose(device.ordinal);
}

void settle(glm_device& device) {
  if (!device.staging->is_idle()) device.staging->finish();
}

void expect_no_capture(const glm_device& device, const char* where) {
  if (!device.is_capturing) return;
  throw Failure(GLM_INVALID_ARGUMENT,
                std::string(where) + ": not allowed during graph capture");
}

void expect_group(const glm_device& device, const char* where) {
  if (device.peers != nullptr) device.peers->group().expect_running(where);
}

kernels::Context context_of(const glm_device& device, Region region) {
  return {device.stream, device.num_multiprocessors, device.scratch[region],
          device.capability, device.peers.get()};
}

void device_count(int32_t* count) {
  expect_pointer("device_count", "count", count);
  expect_driver();
  const cudaError_t error = cudaGetDeviceCount(count);
  if (error == cudaErrorNoDevice)
    refuse("no GPU found; use device cpu to run on the CPU");
  check(error, "device cuda");
}

void group_create(const glm_group_options* options, glm_group** group) {
  const char* where = "group_create";
  expect_pointer(where, "options", options);
  expect_pointer(where, "group", group);
  expect_equal(where, "struct_size", sizeof(glm_group_options),
               options->struct_size);
  const int32_t world_size = options->world_size;
  if (world_size != 1 && world_size != 2 && world_size != 4 && world_size != 8)
    reject(where, "world_size", "1, 2, 4 or 8", std::to_string(world_size));
  std::vector<int32_t> ordinals(static_cast<size_t>(world_size));
  for (int32_t rank = 0; rank < world_size; ++rank)
    ordinals[static_cast<size_t>(rank)] =
        options->devices == nullptr ? rank : options->devices[rank];
  *group = new glm_group{collectives::PeerGroup(std::move(ordinals))};
}

void group_bind(glm_device& device, void* memory, int64_t bytes) {
  const char* where = "group_bind";
  expect_no_capture(device, where);
  expect_range(where, "bytes", 1, INT64_MAX, bytes);
  expect_pointer(where, "memory", memory);
  if (device.peers != nullptr) device.peers->bind(memory, bytes, device.stream);
}

void device_open(const glm_device_options* options, glm_device** device) {
  expect_pointer("device_open", "options", options);
  expect_pointer("device_open", "device", device);
  expect_options(*options);
  int32_t count = 0;
  device_count(&count);
  const int32_t ordinal = options->group != nullptr
                              ? options->group->peers.ordinal(options->rank)
                              : 0;
  if (ordinal >= count)
    refuse("rank " + std::to_string(options->rank) + " needs GPU " +
           std::to_string(ordinal) + "; GPUs found: " + std::to_string(count));
  const cudaDeviceProp properties = properties_of(ordinal);
  expect_capability(properties);
  std::unique_ptr<glm_device, void (*)(glm_device*)> opened(new glm_device,
                                                            close);
  opened->ordinal = ordinal;
  opened->num_multiprocessors = properties.multiProcessorCount;
  opened->capability = properties.major;
  choose(opened->ordinal);
  if (options->world_size > 1)
    opened->peers = std::make_unique<collectives::PeerRank>(
        options->group->peers, options->rank);
  opened->stream = stream_of(*opened);
  opened->staging = std::make_unique<Staging>(opened->ordinal, opened->stream,
                                              options->num_threads);
  *device = opened.release();
}

void device_close(glm_device* device) {
  if (device != nullptr) close(device);
}

void device_info(glm_device& device, glm_device_info* info) {
  kind_info(info);
  check_call(cwCudaMemInfo(&info->memory_free_bytes, &info->memory_total_bytes),
             "device_info");
  const std::string name = properties_of(device.ordinal).name;
  std::snprintf(info->name, sizeof info->name, "%s%s",
                name.substr(0, kLongestName).c_str(),
                device.capability == kNeverRunMajor ? kNeverRun : "");
}

}
