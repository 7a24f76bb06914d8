#pragma once

#include <array>
#include <cstdint>
#include <string>

#include "native/base/failure.hpp"
#include "platform.hpp"

namespace glm::adapter {

template <typename Element, int rank>
struct ArrayFunctions;

#define GLM_ARRAY_FUNCTIONS(ELEMENT, NAME, RANK, ...)                        \
  template <>                                                                \
  struct ArrayFunctions<ELEMENT, RANK> {                                     \
    using Handle = futhark_##NAME##_##RANK##d;                               \
    static Handle* wrap(futhark_context* context, platform::Memory data,     \
                        const std::array<int64_t, RANK>& shape) {            \
      return futhark_new_raw_##NAME##_##RANK##d(context, data, __VA_ARGS__); \
    }                                                                        \
    static Handle* copy(futhark_context* context, const ELEMENT* data,       \
                        const std::array<int64_t, RANK>& shape) {            \
      return futhark_new_##NAME##_##RANK##d(context, data, __VA_ARGS__);     \
    }                                                                        \
    static platform::Memory data(futhark_context* context, Handle* handle) { \
      return futhark_values_raw_##NAME##_##RANK##d(context, handle);         \
    }                                                                        \
    static const int64_t* shape(futhark_context* context, Handle* handle) {  \
      return futhark_shape_##NAME##_##RANK##d(context, handle);              \
    }                                                                        \
    static int release(futhark_context* context, Handle* handle) {           \
      return futhark_free_##NAME##_##RANK##d(context, handle);               \
    }                                                                        \
  };

GLM_ARRAY_FUNCTIONS(uint8_t, u8, 1, shape[0])
GLM_ARRAY_FUNCTIONS(uint8_t, u8, 2, shape[0], shape[1])
GLM_ARRAY_FUNCTIONS(uint16_t, u16, 1, shape[0])
GLM_ARRAY_FUNCTIONS(uint16_t, u16, 2, shape[0], shape[1])
GLM_ARRAY_FUNCTIONS(int32_t, i32, 1, shape[0])
GLM_ARRAY_FUNCTIONS(int32_t, i32, 2, shape[0], shape[1])
GLM_ARRAY_FUNCTIONS(uint32_t, u32, 1, shape[0])
GLM_ARRAY_FUNCTIONS(uint32_t, u32, 2, shape[0], shape[1])
GLM_ARRAY_FUNCTIONS(uint64_t, u64, 1, shape[0])
GLM_ARRAY_FUNCTIONS(float, f32, 1, shape[0])
GLM_ARRAY_FUNCTIONS(float, f32, 2, shape[0], shape[1])
GLM_ARRAY_FUNCTIONS(uint8_t, u8, 5, shape[0], shape[1], shape[2], shape[3],
                    shape[4])
GLM_ARRAY_FUNCTIONS(float, f32, 5, shape[0], shape[1], shape[2], shape[3],
                    shape[4])

#undef GLM_ARRAY_FUNCTIONS

void check_kernel(futhark_context* context, const char* where, int code);

template <typename Element, int rank>
class Array {
 public:
  using Functions = ArrayFunctions<Element, rank>;
  using Handle = typename Functions::Handle;

  explicit Array(futhark_context* context) : context_(context) {}

  template <typename Source, typename... Sizes>
  Array(futhark_context* context, Source* data, Sizes... sizes)
      : context_(context) {
    static_assert(sizeof...(Sizes) == rank);
    static_assert(sizeof(Source) == sizeof(Element));
    alignas(64) static unsigned char nothing[64];
    const void* address = data;
    if (address == nullptr) address = nothing;
    handle_ = Functions::wrap(context, platform::memory_at(address),
                              {static_cast<int64_t>(sizes)...});
    expect_header();
  }

  template <typename... Sizes>
  static Array from_host(futhark_context* context, const Element* values,
                         Sizes... sizes) {
    return Array(
        Functions::copy(context, values, {static_cast<int64_t>(sizes)...}),
        context);
  }

  Array(const Array&) = delete;
  Array& operator=(const Array&) = delete;

  ~Array() {
    if (handle_ != nullptr) Functions::release(context_, handle_);
  }

  operator const Handle*() const { return handle_; }
  Handle** slot() { return &handle_; }

  const void* data() const {
    return platform::address_of(Functions::data(context_, handle_));
  }

  int64_t size() const {
    const int64_t* shape = Functions::shape(context_, handle_);
    int64_t product = 1;
    for (int i = 0; i < rank; ++i) product *= shape[i];
    return product;
  }

  void copy_to(const char* where, void* destination, int64_t count) const {
    if (size() != count)
      throw Failure(GLM_INTERNAL_ERROR,
                    std::string(where) + ": expected " + std::to_string(count) +
                        " results, got " + std::to_string(size()));
    const void* source = data();
    if (count == 0 || source == destination) return;
    platform::copy(where, destination, source, count * sizeof(Element));
  }

 private:
  Array(Handle* handle, futhark_context* context)
      : context_(context), handle_(handle) {
    expect_header();
  }

  void expect_header() const {
    if (handle_ == nullptr)
      throw Failure(GLM_OUT_OF_MEMORY,
                    "not enough host memory for an array header");
  }

  futhark_context* context_;
  Handle* handle_ = nullptr;
};

}
