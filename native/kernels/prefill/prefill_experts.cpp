#include <algorithm>

#include "native/base/cuda.hpp"
#include "native/collectives/peer/peer_rank.hpp"
#include "native/kernels/prefill/prefill.hpp"
#include "native/kernels/prefill/product.hpp"
#include "native/kernels/prefill/scratch.hpp"
#include "native/kernels/prefill/stages.hpp"

namespace glm::kernels {
namespace {

using prefill::Product;

constexpr char kWhere[] = "prefill experts";

class Experts {
 public:
  Experts(const Context& context, const glm_experts_args& args)
      : context_(context),
        args_(args),
        num_choices_(args.num_tokens * args.top_k),
        hidden_size_(args.gate_up->columns),
        width_(args.down->columns),
        local_(local_experts(args)),
        is_fp8_(args.gate_up->dtype == GLM_DTYPE_F8_E4M3),
        layout_(prefill::expert_layout(args.gate_up->dtype, num_choices_,
                                       local_.count(), hidden_size_, width_)) {
    expect_range(kWhere, "scratch bytes", layout_.bytes, INT64_MAX,
                 context.scratch.bytes);
    expect_pointer(kWhere, "scratch", context.scratch.data);
  }

  void run() {
    prefill::sort_choices(
        context_, {num_choices_, local_, local_.count(), args_.expert_ids,
                   at<int32_t>(layout_.begin), at<int32_t>(layout_.position)});
    if (local_.count() > 0) run_products();
    prefill::combine_rows(
        context_, {args_.num_tokens, args_.top_k, hidden_size_,
                   static_cast<int32_t>(layout_.product_stride),
                   at<int32_t>(layout_.position), args_.expert_weights,
                   at<uint8_t>(layout_.products), args_.initial, args_.output,
                   collectives::reserve_exchange(
                       context_.peers, kWhere, args_.part_of_sum,
                       {args_.output, args_.num_tokens, hidden_size_})});
  }

 private:
  template <typename Element>
  Element* at(int64_t region) const {
    return reinterpret_cast<Element*>(
        static_cast<uint8_t*>(context_.scratch.data) + region);
  }

  const uint8_t* tokens() const {
    return is_fp8_ ? args_.input.codes
                   : static_cast<const uint8_t*>(args_.input.plain);
  }

  void run_products() {
    prefill::gather_rows(
        context_, {args_.num_tokens, args_.top_k,
                   int64_t{hidden_size_} * dtype_bytes(args_.gate_up->dtype),
                   layout_.input_stride, tokens(),
                   is_fp8_ ? args_.input.row_scale : nullptr,
                   at<int32_t>(layout_.position), at<uint8_t>(layout_.gathered),
                   at<float>(layout_.input_scale)});
    multiply_gate_up();
    if (is_fp8_)
      prefill::quantise_hidden(
          context_,
          {width_, shared_width(), static_cast<int32_t>(layout_.hidden_stride),
           local_.num_routed, local_.count(), at<int32_t>(layout_.begin),
           at<float>(layout_.hidden), at<uint8_t>(layout_.inner),
           at<float>(layout_.hidden_scale)});
    multiply_down();
  }

  int32_t shared_width() const {
    return has_shared_expert(args_) ? args_.shared_down->columns : 0;
  }

  Product grouped(const glm_matrix& matrix, int64_t stride,
                  int64_t scale_stride, const glm_matrix* shared) const {
    Product product = prefill::describe(matrix);
    product.matrix.expert_stride = stride;
    product.matrix.channel_scale_stride = scale_stride / 4;
    if (has_shared_expert(args_)) {
      product.shared = prefill::describe_matrix(*shared);
      product.shared_expert = local_.shared_index;
    }
    product.expert_begin = at<int32_t>(layout_.begin);
    product.num_experts = local_.count();
    product.num_tokens = num_choices_;
    product.tile_tokens = prefill::expert_tile_tokens_of(
        matrix.dtype, num_choices_, local_.count());
    return product;
  }

  void multiply_gate_up() const {
    const glm_matrix& matrix = *args_.gate_up;
    Product product = grouped(matrix, args_.gate_up_stride,
                              args_.gate_up_scale_stride, args_.shared_gate_up);
    product.output = at<uint8_t>(is_fp8_ ? layout_.hidden : layout_.inner);
    product.output_stride = layout_.hidden_stride;
    product.token_scale = is_fp8_ ? at<float>(layout_.input_scale) : nullptr;
    const prefill::TokenMaps maps =
        prefill::token_maps(kWhere, at<uint8_t>(layout_.gathered), matrix.dtype,
                            product, hidden_size_, layout_.input_stride);
    if (is_fp8_)
      prefill::product_fp8_swiglu(context_, maps, product);
    else
      prefill::product_bf16_swiglu(context_, maps, product);
  }

  void multiply_down() const {
    const glm_matrix& matrix = *args_.down;
    Product product = grouped(matrix, args_.down_stride,
                              args_.down_scale_stride, args_.shared_down);
    product.output = at<uint8_t>(layout_.products);
    product.wide_stores = true;
    product.output_stride = layout_.product_stride;
    product.token_scale = is_fp8_ ? at<float>(layout_.hidden_scale) : nullptr;
    const prefill::TokenMaps maps = prefill::token_maps(
        kWhere, at<uint8_t>(layout_.inner), matrix.dtype, product, width_,
        layout_.hidden_stride * dtype_bytes(matrix.dtype));
    if (is_fp8_)
      prefill::product_fp8_partial(context_, maps, product);
    else
      prefill::product_bf16_partial(context_, maps, product);
  }

  const Context& context_;
  const glm_experts_args& args_;
  int32_t num_choices_;
  int32_t hidden_size_;
  int32_t width_;
  LocalExperts local_;
  bool is_fp8_;
  prefill::ExpertLayout layout_;
};

}

void prefill_experts(const Context& context, const glm_experts_args& args) {
  expect_range(kWhere, "num_tokens times top_k", 0, INT32_MAX,
               int64_t{args.num_tokens} * args.top_k);
  Experts(context, args).run();
}

}
