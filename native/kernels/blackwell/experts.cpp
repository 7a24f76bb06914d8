#include <algorithm>
#include <vector>

#include "native/base/failure.hpp"
#include "native/kernels/blackwell/operations.hpp"
#include "native/kernels/blackwell/product.hpp"
#include "native/kernels/blackwell/stored_rows.hpp"
#include "native/kernels/blackwell/swiglu.hpp"
#include "native/kernels/prefill/stages.hpp"

namespace glm::kernels::blackwell {
namespace {

constexpr char kWhere[] = "blackwell experts";
ExpertShape shape_of(const glm_experts_args& args) {
  return {args.gate_up->dtype, args.top_k, local_experts(args).count(),
          args.gate_up->columns, args.down->columns};
}

int32_t rows_that_fit(const ExpertShape& shape, int32_t num_rows,
                      int64_t bytes) {
  int32_t rows = num_rows;
  while (rows > 1 && ExpertLayout(shape, rows).bytes > bytes)
    rows = (rows + 1) / 2;
  return rows;
}

std::vector<ExpertStack> expert_stacks(const glm_experts_args& args) {
  std::vector<ExpertStack> stacks;
  if (args.num_local_experts > 0) stacks.push_back(routed_experts(args));
  if (has_shared_expert(args)) stacks.push_back(shared_expert(args));
  return stacks;
}

class Rows {
 public:
  Rows(const Context& context, const glm_experts_args& args, int32_t row_begin,
       int32_t num_rows)
      : context_(context),
        args_(args),
        shape_(shape_of(args)),
        layout_(shape_, num_rows),
        row_begin_(row_begin),
        num_rows_(num_rows) {
    expect_range(kWhere, "bytes of scratch", layout_.bytes, INT64_MAX,
                 context.scratch.bytes);
    expect_pointer(kWhere, "scratch", context.scratch.data);
  }

  void run() const {
    const int64_t first = int64_t{row_begin_} * shape_.top_k;
    prefill::sort_choices(
        context_, {num_choices(), local_experts(args_), shape_.num_experts,
                   args_.expert_ids + first, at<int32_t>(layout_.begin),
                   at<int32_t>(layout_.position)});
    if (shape_.num_experts > 0) run_products();
    prefill::combine_rows(
        context_, {num_rows_, shape_.top_k, shape_.hidden_size,
                   static_cast<int32_t>(layout_.product_pitch),
                   at<int32_t>(layout_.position), args_.expert_weights + first,
                   at<uint8_t>(layout_.products), plain_row(args_.initial),
                   const_cast<uint8_t*>(plain_row(args_.output))});
  }

 private:
  template <typename Element>
  Element* at(int64_t region) const {
    return reinterpret_cast<Element*>(
        static_cast<uint8_t*>(context_.scratch.data) + region);
  }

  bool is_fp8() const { return shape_.dtype == GLM_DTYPE_F8_E4M3; }

  int32_t num_choices() const { return num_rows_ * shape_.top_k; }

  const uint8_t* plain_row(const void* rows) const {
    if (rows == nullptr) return nullptr;
    return static_cast<const uint8_t*>(rows) +
           int64_t{row_begin_} * shape_.hidden_size * kBf16Bytes;
  }

  const uint8_t* tokens() const {
    return is_fp8()
               ? args_.input.codes + int64_t{row_begin_} * shape_.hidden_size
               : plain_row(args_.input.plain);
  }

  void run_products() const {
    prefill::gather_rows(
        context_, {num_rows_, shape_.top_k,
                   int64_t{shape_.hidden_size} * dtype_bytes(shape_.dtype),
                   layout_.input_bytes, tokens(),
                   is_fp8() ? args_.input.row_scale + row_begin_ : nullptr,
                   at<int32_t>(layout_.position), at<uint8_t>(layout_.gathered),
                   at<float>(layout_.input_scale)});
    const std::vector<ExpertStack> stacks = expert_stacks(args_);
    for (const ExpertStack& stack : stacks) make_hidden_rows(stack);
    for (const ExpertStack& stack : stacks) multiply_down(stack);
  }

  const int32_t* begin_of(const ExpertStack& stack) const {
    return at<int32_t>(layout_.begin) + stack.index_begin;
  }

  void make_hidden_rows(const ExpertStack& stack) const {
    multiply_gate_up(stack);
    gate_rows(context_, {shape_.dtype, stack.down->columns, begin_of(stack),
                         stack.num_experts, at<float>(layout_.gate_up),
                         layout_.gate_up_pitch, at<uint8_t>(layout_.inner),
                         layout_.inner_bytes / dtype_bytes(shape_.dtype),
                         at<float>(layout_.hidden_scale)});
  }

  Product grouped(const ExpertStack& stack, const glm_matrix& matrix,
                  int64_t stride, int64_t scale_stride) const {
    Product product = describe(matrix);
    product.expert_stride = stride;
    product.channel_scale_stride = scale_stride / kFloatBytes;
    product.expert_begin = begin_of(stack);
    product.num_groups = stack.num_experts;
    product.num_tokens = num_choices();
    return product;
  }

  void multiply_gate_up(const ExpertStack& stack) const {
    Product product = grouped(stack, *stack.gate_up, stack.gate_up_stride,
                              stack.gate_up_scale_stride);
    product.output_dtype = GLM_DTYPE_F32;
    product.tokens = at<uint8_t>(layout_.gathered);
    product.token_pitch = layout_.input_bytes;
    product.token_scale = is_fp8() ? at<float>(layout_.input_scale) : nullptr;
    product.output = at<uint8_t>(layout_.gate_up);
    product.output_pitch = layout_.gate_up_pitch;
    multiply(context_, product, context_.scratch);
  }

  void multiply_down(const ExpertStack& stack) const {
    Product product =
        grouped(stack, *stack.down, stack.down_stride, stack.down_scale_stride);
    product.tokens = at<uint8_t>(layout_.inner);
    product.token_pitch = layout_.inner_bytes;
    product.token_scale = is_fp8() ? at<float>(layout_.hidden_scale) : nullptr;
    product.output = at<uint8_t>(layout_.products);
    product.output_pitch = layout_.product_pitch;
    multiply(context_, product, context_.scratch);
  }

  const Context& context_;
  const glm_experts_args& args_;
  ExpertShape shape_;
  ExpertLayout layout_;
  int32_t row_begin_;
  int32_t num_rows_;
};

}

void experts(const Context& context, const glm_experts_args& args) {
  const int32_t num_rows = args.num_tokens;
  const int32_t chunk =
      rows_that_fit(shape_of(args), num_rows, context.scratch.bytes);
  for (int32_t row = 0; row < num_rows; row += chunk)
    Rows(context, args, row, std::min(num_rows - row, chunk)).run();
}

}
