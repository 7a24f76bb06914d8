#include <string>

#include "arrays.hpp"
#include "device.hpp"
#include "native/base/local_experts.hpp"
#include "operations.hpp"

namespace glm::adapter {
namespace {

constexpr char kExperts[] = "experts";

struct Stacked {
  int64_t stride;
  int64_t size;
  int64_t scale_stride;
  int64_t num_scales;
};

Stacked stacked(const glm_matrix& matrix, int64_t num_experts, int64_t stride,
                int64_t scale_stride) {
  const int64_t element = element_bytes(kExperts, matrix.dtype);
  const int64_t bytes = matrix_bytes(matrix);
  if (num_experts > 1) {
    expect_range(kExperts, "stride", bytes, INT64_MAX, stride);
    expect_equal(kExperts, "stride modulo element size", 0, stride % element);
  }
  Stacked shape = {stride / element,
                   ((num_experts - 1) * stride + bytes) / element, 0, 0};
  if (matrix.dtype != GLM_DTYPE_F8_E4M3) return shape;
  if (num_experts > 1) {
    expect_range(kExperts, "scale stride", matrix.rows * int64_t{4}, INT64_MAX,
                 scale_stride);
    expect_equal(kExperts, "scale stride modulo 4", 0, scale_stride % 4);
  }
  shape.scale_stride = scale_stride / 4;
  shape.num_scales = (num_experts - 1) * shape.scale_stride + matrix.rows;
  return shape;
}

void expect_experts(const glm_experts_args& args) {
  expect_range(kExperts, "num_tokens", 0, INT32_MAX, args.num_tokens);
  expect_range(kExperts, "part_of_sum", GLM_NO_PART_OF_SUM,
               GLM_PART_OF_SCATTERED_SUM, args.part_of_sum);
  expect_range(kExperts, "top_k", 1, INT32_MAX, args.top_k);
  expect_local_experts(kExperts, INT32_MAX, args);
  expect_matrix(kExperts, "gate_up", args.gate_up, GLM_MATRIX_GATE_UP);
  expect_matrix(kExperts, "down", args.down, GLM_MATRIX_LINEAR);
  expect_equal(kExperts, "down dtype", args.gate_up->dtype, args.down->dtype);
  expect_equal(kExperts, "gate_up rows", 2 * int64_t{args.down->columns},
               args.gate_up->rows);
  expect_equal(kExperts, "down rows", args.gate_up->columns, args.down->rows);
  if (args.gate_up->bias != nullptr || args.down->bias != nullptr)
    reject(kExperts, "bias", "none", "a bias");
  expect_shared_shapes(kExperts, args);
  expect_shared_memory(kExperts, args);
}

class Experts {
 public:
  Experts(glm_device& device, const glm_experts_args& args,
          const ExpertStack& stack, const void* initial)
      : args_(args),
        stack_(stack),
        context_(device.context),
        tokens_(args.num_tokens),
        hidden_(stack.gate_up->columns),
        gate_up_(stacked(*stack.gate_up, stack.num_experts,
                         stack.gate_up_stride, stack.gate_up_scale_stride)),
        down_(stacked(*stack.down, stack.num_experts, stack.down_stride,
                      stack.down_scale_stride)),
        plain_(context_, static_cast<const float*>(args.input.plain), tokens_,
               hidden_),
        ids_(context_, args.expert_ids, tokens_, args.top_k),
        weights_(context_, args.expert_weights, tokens_, args.top_k),
        initial_(context_, static_cast<const float*>(initial),
                 initial == nullptr ? 0 : tokens_, hidden_),
        result_(context_) {}

  void run() {
    switch (stack_.gate_up->dtype) {
      case GLM_DTYPE_F8_E4M3:
        check_kernel(context_, kExperts, run_fp8());
        break;
      case GLM_DTYPE_BF16:
        check_kernel(context_, kExperts, run_bf16());
        break;
      default:
        check_kernel(context_, kExperts, run_f32());
    }
    result_.copy_to(kExperts, args_.output, tokens_ * hidden_);
  }

 private:
  template <typename Element>
  Array<Element, 1> data(const glm_matrix& matrix, const Stacked& shape) const {
    return Array<Element, 1>(context_, static_cast<Element*>(matrix.data),
                             shape.size);
  }

  Array<float, 1> scale(const glm_matrix& matrix, const Stacked& shape) const {
    return Array<float, 1>(context_, matrix.row_scale, shape.num_scales);
  }

  int run_fp8() {
    const Array<uint8_t, 2> codes(context_, args_.input.codes, tokens_,
                                  hidden_);
    const Array<float, 1> row_scale(context_, args_.input.row_scale, tokens_);
    const auto gate_up = data<uint8_t>(*stack_.gate_up, gate_up_);
    const auto down = data<uint8_t>(*stack_.down, down_);
    const auto gate_up_scale = scale(*stack_.gate_up, gate_up_);
    const auto down_scale = scale(*stack_.down, down_);
    return futhark_entry_experts_fp8(
        context_, result_.slot(), stack_.id_begin, stack_.num_experts,
        stack_.down->columns, codes, row_scale, ids_, weights_, gate_up,
        gate_up_.stride, gate_up_scale, gate_up_.scale_stride, down,
        down_.stride, down_scale, down_.scale_stride, initial_);
  }

  int run_bf16() {
    const auto gate_up = data<uint16_t>(*stack_.gate_up, gate_up_);
    const auto down = data<uint16_t>(*stack_.down, down_);
    return futhark_entry_experts_bf16(
        context_, result_.slot(), stack_.id_begin, stack_.num_experts,
        stack_.down->columns, plain_, ids_, weights_, gate_up, gate_up_.stride,
        down, down_.stride, initial_);
  }

  int run_f32() {
    const auto gate_up = data<float>(*stack_.gate_up, gate_up_);
    const auto down = data<float>(*stack_.down, down_);
    return futhark_entry_experts_f32(
        context_, result_.slot(), stack_.id_begin, stack_.num_experts,
        stack_.down->columns, plain_, ids_, weights_, gate_up, gate_up_.stride,
        down, down_.stride, initial_);
  }

  const glm_experts_args& args_;
  ExpertStack stack_;
  futhark_context* context_;
  int64_t tokens_;
  int64_t hidden_;
  Stacked gate_up_, down_;
  Array<float, 2> plain_;
  Array<int32_t, 2> ids_;
  Array<float, 2> weights_;
  Array<float, 2> initial_;
  Array<float, 2> result_;
};

}

void route(glm_device& device, const glm_route_args& args) {
  const char* where = "route";
  expect_range(where, "num_tokens", 0, INT32_MAX, args.num_tokens);
  expect_matrix(where, "router", args.router, GLM_MATRIX_LINEAR);
  const glm_matrix& router = *args.router;
  expect_plain(where, "a router", router);
  expect_range(where, "top_k", 1, router.rows, args.top_k);
  expect_range(where, "num_shared_experts", 0, 64, args.num_shared_experts);
  const int64_t tokens = args.num_tokens;
  if (tokens == 0) return;
  expect_pointer(where, "input", args.input);
  expect_pointer(where, "selection_bias", args.selection_bias);
  expect_pointer(where, "expert_ids", args.expert_ids);
  expect_pointer(where, "expert_weights", args.expert_weights);
  futhark_context* context = device.context;
  Array<float, 2> scores(context);
  linear_result(device, where, tokens, router, {args.input, nullptr, nullptr},
                scores.slot());
  const Array<float, 1> bias(context, args.selection_bias, router.rows);
  Array<int32_t, 2> ids(context);
  Array<float, 2> weights(context);
  check_kernel(context, where,
               futhark_entry_route(context, ids.slot(), weights.slot(),
                                   args.num_shared_experts, args.top_k,
                                   args.normalise != 0, args.scaling_factor,
                                   bias, scores));
  const int64_t count = tokens * (args.num_shared_experts + args.top_k);
  ids.copy_to(where, args.expert_ids, count);
  weights.copy_to(where, args.expert_weights, count);
}

void experts(glm_device& device, const glm_experts_args& args) {
  expect_experts(args);
  const int64_t tokens = args.num_tokens;
  if (tokens == 0) return;
  expect_pointer(kExperts, "output", args.output);
  expect_pointer(kExperts, "expert_ids", args.expert_ids);
  expect_pointer(kExperts, "expert_weights", args.expert_weights);
  if (args.gate_up->dtype == GLM_DTYPE_F8_E4M3) {
    expect_pointer(kExperts, "input.codes for FP8 experts", args.input.codes);
    expect_pointer(kExperts, "input.row_scale for FP8 experts",
                   args.input.row_scale);
  } else {
    expect_pointer(kExperts, "input.plain for unquantized experts",
                   args.input.plain);
  }
  const void* initial = args.initial;
  if (has_shared_expert(args)) {
    Experts(device, args, shared_expert(args), initial).run();
    initial = args.output;
  }
  Experts(device, args, routed_experts(args), initial).run();
}

}
