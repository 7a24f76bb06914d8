#include "native/base/cuda.hpp"
#include "native/ptx/dependent_launch.hpp"
#include "tests/native/slow_store/slow_store.hpp"

namespace {

constexpr int32_t kThreads = 256;
constexpr int64_t kSlowCycles = 2'000'000;

__global__ void store_pages(PagesToStore store) {
  glm::ptx::let_successor_start();
  const int64_t begin = clock64();
  while (clock64() - begin < kSlowCycles) {
  }
  const int64_t place = store.pages[blockIdx.x] * store.page_bytes;
  const auto* from = reinterpret_cast<const uint4*>(store.fresh + place);
  auto* into = reinterpret_cast<uint4*>(store.cache + place);
  for (int64_t i = threadIdx.x; i < store.page_bytes / 16; i += kThreads)
    into[i] = from[i];
}

}

void store_slowly(cudaStream_t stream, const PagesToStore& store) {
  store_pages<<<static_cast<uint32_t>(store.num_pages), kThreads, 0, stream>>>(
      store);
  glm::check(cudaGetLastError(), "store_slowly");
}
