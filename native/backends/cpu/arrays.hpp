#pragma once

#include <array>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string>

#include "kernels_cpu.h"
#include "native/base/failure.hpp"

namespace glm::cpu {

template <typename Element, int rank>
struct ArrayFunctions;

#define GLM_ARRAY_FUNCTIONS(ELEMENT, NAME, RANK, ...)                        \
  template <>                                                                \
  struct ArrayFunctions<ELEMENT, RANK> {                                     \
    using Handle = futhark_##NAME##_##RANK##d;                               \
    static Handle* wrap(futhark_context* context, unsigned char* data,       \
                        const std::array<int64_t, RANK>& shape) {            \
      return futhark_new_raw_##NAME##_##RANK##d(context, data, __VA_ARGS__); \
    }                                                                        \
    static unsigned char* data(futhark_context* context, Handle* handle) {   \
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
    handle_ = Functions::wrap(
        context,
        const_cast<unsigned char*>(static_cast<const unsigned char*>(address)),
        {static_cast<int64_t>(sizes)...});
    if (handle_ == nullptr)
      throw Failure(GLM_OUT_OF_MEMORY,
                    "not enough host memory for an array header");
  }

  Array(const Array&) = delete;
  Array& operator=(const Array&) = delete;

  ~Array() {
    if (handle_ != nullptr) Functions::release(context_, handle_);
  }

  operator const Handle*() const { return handle_; }
  Handle** slot() { return &handle_; }

  const unsigned char* data() const {
    return Functions::data(context_, handle_);
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
    const unsigned char* source = data();
    if (count == 0 || source == destination) return;
    std::memcpy(destination, source,
                static_cast<size_t>(count) * sizeof(Element));
  }

 private:
  futhark_context* context_;
  Handle* handle_ = nullptr;
};

}
