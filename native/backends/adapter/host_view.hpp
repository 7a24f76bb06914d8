#pragma once

#include <algorithm>
#include <cstdint>
#include <type_traits>
#include <vector>

#include "native/base/failure.hpp"
#include "platform.hpp"

namespace glm::adapter {

template <typename Value>
class HostView {
 public:
  HostView(const char* where, Value* memory, int64_t count)
      : where_(where), memory_(memory), count_(memory == nullptr ? 0 : count) {
    if constexpr (!platform::kSharesMemory) {
      own_.resize(static_cast<size_t>(count_));
      platform::copy(where, own_.data(), memory, bytes());
    }
  }
  HostView(const HostView&) = delete;
  HostView& operator=(const HostView&) = delete;

  Value* data() {
    if constexpr (platform::kSharesMemory)
      return memory_;
    else
      return memory_ == nullptr ? nullptr : own_.data();
  }

  Value& operator[](int64_t index) { return data()[index]; }

  void write() const {
    if constexpr (!platform::kSharesMemory)
      platform::copy(where_, memory_, own_.data(), bytes());
  }

 private:
  int64_t bytes() const { return count_ * int64_t{sizeof(Value)}; }

  const char* where_;
  Value* memory_;
  int64_t count_;
  std::vector<std::remove_const_t<Value>> own_;
};

inline void expect_indices(const char* where, const char* what, int64_t low,
                           int64_t high, const int32_t* values, int64_t count) {
  if (platform::kSharesMemory)
    expect_each(where, what, low, high, values, count);
  else if (count > 0)
    expect_pointer(where, what, values);
}

inline int64_t rows_read_by(const int32_t* indices, int64_t count) {
  int64_t rows = 0;
  for (int64_t i = 0; i < count; ++i)
    rows = std::max(rows, int64_t{indices[i]} + 1);
  return rows;
}

inline int64_t most_rows_read_by(const int32_t* indices, int64_t count) {
  return platform::kSharesMemory ? rows_read_by(indices, count) : INT32_MAX;
}

}
