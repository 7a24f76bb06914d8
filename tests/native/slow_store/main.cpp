#include <cuda_runtime.h>

#include <algorithm>
#include <cstdint>
#include <iostream>
#include <random>
#include <string>
#include <vector>

#include "native/base/cuda.hpp"
#include "native/kernels/attention/decode_attention.hpp"
#include "native/kernels/layout.hpp"
#include "tests/native/slow_store/slow_store.hpp"

namespace {

namespace kernels = glm::kernels;

constexpr int32_t kFirst[] = {15, 31, 255, 511, 1023};
constexpr int32_t kNumSequences = 5;
constexpr int32_t kPagesOfSequence = 66;
constexpr int32_t kNumPages = kNumSequences * kPagesOfSequence;
constexpr int32_t kPageSize = kernels::kBlockTokens;
constexpr int32_t kGroup = 3;
constexpr int32_t kHeadDim = 128;
constexpr int64_t kScratchBytes = int64_t{64} << 20;

template <typename T>
T* memory_of(int64_t count) {
  void* data = nullptr;
  const auto bytes = static_cast<size_t>(count) * sizeof(T);
  glm::check(cudaMalloc(&data, bytes), "memory");
  glm::check(cudaMemset(data, 0, bytes), "memory");
  return static_cast<T*>(data);
}

template <typename T>
T* placed(const std::vector<T>& values) {
  T* data = memory_of<T>(static_cast<int64_t>(values.size()));
  glm::check(cudaMemcpy(data, values.data(), values.size() * sizeof(T),
                        cudaMemcpyHostToDevice),
             "upload");
  return data;
}

std::vector<uint16_t> random_bf16(int64_t count, uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<uint16_t> values(static_cast<size_t>(count));
  for (uint16_t& value : values)
    value = static_cast<uint16_t>((random() & 0x81FF) | 0x3E00);
  return values;
}

std::vector<uint16_t> random_pages(int32_t dtype, int64_t bytes,
                                   uint32_t seed) {
  std::vector<uint16_t> values = random_bf16(bytes / 2, seed);
  if (dtype == GLM_DTYPE_F8_E4M3)
    for (uint16_t& value : values)
      value = static_cast<uint16_t>((value * 0x9E37u & 0x8787) | 0x3030);
  return values;
}

struct Rows {
  std::vector<int32_t> context_length;
  std::vector<int32_t> table_row;
  std::vector<int32_t> pages;
};

Rows rows_of(int32_t rows_each) {
  Rows rows;
  for (int32_t sequence = 0; sequence < kNumSequences; ++sequence) {
    const int32_t first = kFirst[sequence];
    for (int32_t i = 0; i < rows_each; ++i) {
      rows.context_length.push_back(first + i + 1);
      rows.table_row.push_back(sequence);
    }
    for (int32_t page = first / kPageSize;
         page <= (first + rows_each - 1) / kPageSize; ++page)
      rows.pages.push_back(sequence * kPagesOfSequence + page);
  }
  return rows;
}

kernels::Context new_context() {
  kernels::Context context;
  glm::check(cudaStreamCreateWithFlags(&context.stream, cudaStreamNonBlocking),
             "stream");
  cudaDeviceProp properties = {};
  glm::check(cudaGetDeviceProperties(&properties, 0), "device");
  context.num_multiprocessors = properties.multiProcessorCount;
  context.capability = properties.major;
  context.scratch = {memory_of<uint8_t>(kScratchBytes), kScratchBytes};
  return context;
}

class Step {
 public:
  Step(int32_t dtype, int32_t rows_each, int32_t num_kv_heads)
      : context_(new_context()), rows_(rows_of(rows_each)) {
    cache_.dtype = dtype;
    cache_.num_layers = 1;
    cache_.num_pages = kNumPages;
    cache_.page_size = kPageSize;
    cache_.num_kv_heads = num_kv_heads;
    cache_.head_dim = kHeadDim;
    place_pages();
    place_segments();
    output_ = memory_of<uint16_t>(num_words());
    args_.num_tokens = num_rows();
    args_.num_heads = kGroup * num_kv_heads;
    args_.scale = 0.088f;
    args_.query = placed(random_bf16(num_words(), 3));
    args_.cache = &cache_;
    args_.output = output_;
  }

  std::vector<uint16_t> after_the_store() {
    glm::check(cudaDeviceSynchronize(), "uploads");
    copy_pages(store_.fresh);
    glm::check(cudaDeviceSynchronize(), "pages");
    return attended(1);
  }

  std::vector<uint16_t> behind_the_store(int32_t told_rows) {
    copy_pages(stale_);
    store_slowly(context_.stream, store_);
    return attended(told_rows);
  }

  int64_t words_of_row() const {
    return int64_t{kGroup} * cache_.num_kv_heads * kHeadDim;
  }

  int64_t num_words() const { return num_rows() * words_of_row(); }

  int32_t num_rows() const {
    return static_cast<int32_t>(rows_.table_row.size());
  }

 private:
  int64_t cache_bytes() const { return kNumPages * store_.page_bytes; }

  void place_pages() {
    store_.page_bytes =
        kernels::head_page_bytes(cache_.dtype, kHeadDim, kPageSize) *
        cache_.num_kv_heads;
    const std::vector<uint16_t> fresh =
        random_pages(cache_.dtype, cache_bytes(), 1);
    const std::vector<uint16_t> other =
        random_pages(cache_.dtype, cache_bytes(), 2);
    std::vector<uint16_t> stale = fresh;
    const int64_t words = store_.page_bytes / 2;
    for (const int32_t page : rows_.pages)
      std::copy_n(other.begin() + page * words, words,
                  stale.begin() + page * words);
    store_.pages = placed(rows_.pages);
    store_.num_pages = static_cast<int32_t>(rows_.pages.size());
    store_.fresh = reinterpret_cast<const uint8_t*>(placed(fresh));
    stale_ = reinterpret_cast<const uint8_t*>(placed(stale));
    store_.cache = memory_of<uint8_t>(cache_bytes());
    cache_.data = store_.cache;
  }

  void place_segments() {
    std::vector<int32_t> table(kNumPages);
    for (int32_t page = 0; page < kNumPages; ++page)
      table[static_cast<size_t>(page)] = page;
    glm_segments& segments = args_.segments;
    segments.num_segments = num_rows();
    segments.num_decode_segments = num_rows();
    segments.context_length = placed(rows_.context_length);
    segments.table_row = placed(rows_.table_row);
    segments.page_table = placed(table);
    segments.page_table_stride = kPagesOfSequence;
    segments.num_table_rows = kNumSequences;
  }

  void copy_pages(const uint8_t* source) {
    glm::check(cudaMemcpyAsync(store_.cache, source,
                               static_cast<size_t>(cache_bytes()),
                               cudaMemcpyDeviceToDevice, context_.stream),
               "pages");
  }

  std::vector<uint16_t> attended(int32_t told_rows) {
    args_.segments.rows_per_sequence = told_rows;
    const glm_segments& segments = args_.segments;
    kernels::decode_attention(
        context_, args_,
        {0, num_rows(), segments.context_length, segments.table_row, false});
    glm::check(cudaStreamSynchronize(context_.stream), "attention");
    std::vector<uint16_t> values(static_cast<size_t>(num_words()));
    glm::check(cudaMemcpy(values.data(), output_, values.size() * 2,
                          cudaMemcpyDeviceToHost),
               "download");
    return values;
  }

  kernels::Context context_;
  Rows rows_;
  glm_kv_cache cache_ = {};
  glm_attention_args args_ = {};
  PagesToStore store_ = {};
  const uint8_t* stale_ = nullptr;
  uint16_t* output_ = nullptr;
};

int32_t num_different(const std::vector<uint16_t>& left,
                      const std::vector<uint16_t>& right, int64_t words) {
  int32_t count = 0;
  for (auto a = left.begin(), b = right.begin(); a != left.end();
       a += words, b += words)
    count += std::equal(a, a + words, b) ? 0 : 1;
  return count;
}

}

int main(int count, char** words) {
  if (count != 6) {
    std::cerr << "usage: slow_store DTYPE ROWS TOLD_ROWS ATTEMPTS KV_HEADS\n";
    return 2;
  }
  Step step(std::stoi(words[1]), std::stoi(words[2]), std::stoi(words[5]));
  const std::vector<uint16_t> expected = step.after_the_store();
  for (int32_t attempt = 0; attempt < std::stoi(words[4]); ++attempt)
    std::cout << num_different(step.behind_the_store(std::stoi(words[3])),
                               expected, step.words_of_row())
              << '\n';
  return 0;
}
