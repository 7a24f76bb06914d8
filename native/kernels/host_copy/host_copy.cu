#include "native/base/cuda.hpp"
#include "native/kernels/host_copy/host_copy.hpp"
#include "native/kernels/layout.hpp"
#include "native/ptx/dependent_launch.hpp"

namespace glm::kernels {
namespace {

constexpr int64_t kMostBytes = 256 * 1024;
constexpr int32_t kThreads = 128;

template <typename Word>
__global__ void __launch_bounds__(kThreads)
    copy_words(Word* destination, const Word* source, int32_t num_words) {
  ptx::wait_for_predecessor();
  ptx::let_successor_start();
  const int32_t word = static_cast<int32_t>(blockIdx.x) * kThreads +
                       static_cast<int32_t>(threadIdx.x);
  if (word < num_words) destination[word] = __ldcv(source + word);
}

bool has_words_of(const HostCopy& copy, size_t size) {
  return (reinterpret_cast<uintptr_t>(copy.destination) |
          reinterpret_cast<uintptr_t>(copy.source) |
          static_cast<uintptr_t>(copy.bytes)) %
             size ==
         0;
}

template <typename Word>
void launch_copy(const char* where, cudaStream_t stream, const HostCopy& copy) {
  const int64_t num_words = copy.bytes / int64_t{sizeof(Word)};
  LaunchShape shape;
  shape.grid = dim3(static_cast<uint32_t>(ceil_divide(num_words, kThreads)));
  shape.block = dim3(kThreads);
  launch(where, stream, shape, copy_words<Word>,
         static_cast<Word*>(copy.destination),
         static_cast<const Word*>(copy.source),
         static_cast<int32_t>(num_words));
}

bool is_reached(const char* where, const void* pointer, cudaMemoryType type) {
  cudaPointerAttributes attributes = {};
  check(cudaPointerGetAttributes(&attributes, pointer), where);
  return attributes.type == type && attributes.devicePointer == pointer;
}

}

bool is_short_copy(const char* where, const HostCopy& copy, cudaMemoryType from,
                   cudaMemoryType to) {
  return copy.bytes <= kMostBytes && has_words_of(copy, sizeof(uint32_t)) &&
         is_reached(where, copy.source, from) &&
         is_reached(where, copy.destination, to);
}

void host_copy(const char* where, cudaStream_t stream, const HostCopy& copy) {
  if (has_words_of(copy, sizeof(uint4)))
    return launch_copy<uint4>(where, stream, copy);
  launch_copy<uint32_t>(where, stream, copy);
}

}
