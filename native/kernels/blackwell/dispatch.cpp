#include "native/base/failure.hpp"
#include "native/kernels/blackwell/product.hpp"
#include "native/kernels/blackwell/stored_rows.hpp"

namespace glm::kernels::blackwell {
namespace {

constexpr char kWhere[] = "blackwell product";
class Lists {
 public:
  Lists(const Scratch& scratch, int64_t num_groups)
      : next_(static_cast<uint8_t*>(scratch.data)),
        stride_(list_bytes(num_groups)) {}

  template <typename Element>
  void take(Element*& list) {
    list = reinterpret_cast<Element*>(next_);
    next_ += stride_;
  }

  uint8_t* end() const { return next_; }

 private:
  uint8_t* next_;
  int64_t stride_;
};

Groups lay_out(const Scratch& scratch, const Product& product) {
  Lists lists(scratch, product.num_groups);
  Groups groups;
  lists.take(groups.shape);
  lists.take(groups.weights);
  lists.take(groups.weight_pitch);
  lists.take(groups.tokens);
  lists.take(groups.token_pitch);
  lists.take(groups.output);
  lists.take(groups.output_pitch);
  lists.take(groups.channel_scale);
  lists.take(groups.token_scale);
  lists.take(groups.bias);
  groups.workspace = lists.end();
  groups.workspace_bytes = kWorkspaceBytes;
  if (product.channel_scale == nullptr) groups.channel_scale = nullptr;
  if (product.token_scale == nullptr) groups.token_scale = nullptr;
  if (product.bias == nullptr) groups.bias = nullptr;
  return groups;
}

bool is_chunked(const void* pointer) {
  return reinterpret_cast<uintptr_t>(pointer) % kChunkBytes == 0;
}

void launch_product(const Context& context, const Product& product,
                    const Groups& groups) {
  const bool is_fp8 = product.dtype == GLM_DTYPE_F8_E4M3;
  const bool is_float = product.output_dtype == GLM_DTYPE_F32;
  if (is_fp8 && is_float) return product_fp8_f32(context, product, groups);
  if (is_fp8) return product_fp8_bf16(context, product, groups);
  if (is_float) return product_bf16_f32(context, product, groups);
  product_bf16_bf16(context, product, groups);
}

}

Product describe(const glm_matrix& matrix) {
  Product product;
  product.dtype = matrix.dtype;
  product.weights = static_cast<const uint8_t*>(matrix.data);
  product.weight_pitch = row_pitch(matrix.dtype, matrix.columns);
  product.channel_scale =
      matrix.dtype == GLM_DTYPE_F8_E4M3 ? matrix.row_scale : nullptr;
  product.bias = matrix.bias;
  product.rows = matrix.rows;
  product.columns = matrix.columns;
  product.token_pitch = int64_t{matrix.columns} * dtype_bytes(matrix.dtype);
  return product;
}

bool is_aligned(const Product& product) {
  const int64_t output_bytes =
      product.output_pitch * dtype_bytes(product.output_dtype);
  return product.token_pitch % kChunkBytes == 0 &&
         output_bytes % kChunkBytes == 0 && is_chunked(product.tokens) &&
         is_chunked(product.output);
}

void multiply(const Context& context, const Product& product,
              const Scratch& scratch) {
  expect_range(kWhere, "groups", 1, kMaxGroups, product.num_groups);
  expect_range(kWhere, "bytes of scratch",
               product_scratch_bytes(product.num_groups), INT64_MAX,
               scratch.bytes);
  expect_pointer(kWhere, "scratch", scratch.data);
  expect_equal(kWhere, "weights modulo 16", 0,
               reinterpret_cast<uintptr_t>(product.weights) % kChunkBytes);
  if (!is_aligned(product)) {
    expect_equal(kWhere, "number of groups with unaligned rows", 1,
                 product.num_groups);
    return multiply_directly(context, product);
  }
  const Groups groups = lay_out(scratch, product);
  list_groups(context, product, groups);
  launch_product(context, product, groups);
}

}
