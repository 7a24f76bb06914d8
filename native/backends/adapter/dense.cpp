#include <cstdlib>
#include <string>
#include <vector>

#include "arrays.hpp"
#include "device.hpp"
#include "host_view.hpp"
#include "operations.hpp"

namespace glm::adapter {
namespace {

void expect_output(const char* where, const glm_activation_output& output) {
  if ((output.codes == nullptr) != (output.row_scale == nullptr))
    reject(where, "codes and row_scale", "both or neither", "only one");
}

void quantise_plain(glm_device& device, const char* where, int64_t tokens,
                    int64_t width, const void* input, uint8_t* codes,
                    float* row_scale) {
  futhark_context* context = device.context;
  const Array<float, 2> rows(context, static_cast<const float*>(input), tokens,
                             width);
  Array<uint8_t, 2> code_array(context);
  Array<float, 1> scale_array(context);
  check_kernel(context, where,
               futhark_entry_quantise(context, code_array.slot(),
                                      scale_array.slot(), rows));
  code_array.copy_to(where, codes, tokens * width);
  scale_array.copy_to(where, row_scale, tokens);
}

class AddNorm {
 public:
  AddNorm(glm_device& device, const glm_reduce_add_norm_quantise_args& args)
      : args_(args),
        context_(device.context),
        tokens_(args.num_tokens),
        count_(tokens_ * args.hidden_size),
        residual_(context_, static_cast<const float*>(args.residual), tokens_,
                  args.hidden_size),
        delta_(context_, static_cast<const float*>(args.delta), tokens_,
               args.hidden_size),
        weight_(context_, args.weight, args.hidden_size),
        sum_(context_),
        plain_(context_),
        codes_(context_),
        scale_(context_) {}

  void run() {
    const int code = args_.output.codes != nullptr ? quantised() : plain();
    check_kernel(context_, kWhere, code);
    if (args_.delta != nullptr) sum_.copy_to(kWhere, args_.residual, count_);
  }

  void copy_plain() { plain_.copy_to(kWhere, args_.output.plain, count_); }
  void copy_codes() {
    codes_.copy_to(kWhere, args_.output.codes, count_);
    scale_.copy_to(kWhere, args_.output.row_scale, tokens_);
  }

  static constexpr char kWhere[] = "reduce_add_norm_quantise";

 private:
  int quantised() {
    if (args_.delta == nullptr)
      return futhark_entry_norm_quantise(context_, codes_.slot(), scale_.slot(),
                                         args_.epsilon, weight_, residual_);
    return futhark_entry_add_norm_quantise(context_, sum_.slot(), codes_.slot(),
                                           scale_.slot(), args_.epsilon,
                                           weight_, residual_, delta_);
  }

  int plain() {
    if (args_.delta == nullptr)
      return futhark_entry_norm(context_, plain_.slot(), args_.epsilon, weight_,
                                residual_);
    return futhark_entry_add_norm(context_, sum_.slot(), plain_.slot(),
                                  args_.epsilon, weight_, residual_, delta_);
  }

  const glm_reduce_add_norm_quantise_args& args_;
  futhark_context* context_;
  int64_t tokens_;
  int64_t count_;
  Array<float, 2> residual_, delta_;
  Array<float, 1> weight_;
  Array<float, 2> sum_, plain_;
  Array<uint8_t, 2> codes_;
  Array<float, 1> scale_;
};

}

void check_kernel(futhark_context* context, const char* where, int code) {
  if (code == FUTHARK_SUCCESS) return;
  char* text = futhark_context_get_error(context);
  const std::string message =
      text == nullptr ? "Futhark reported no error message" : text;
  std::free(text);
  const bool finds_no_memory = code == FUTHARK_OUT_OF_MEMORY ||
                               message.starts_with("Failed to allocate memory");
  throw Failure(finds_no_memory ? GLM_OUT_OF_MEMORY : GLM_DEVICE_ERROR,
                std::string(where) + ": " + message);
}

void embed(glm_device& device, const glm_embed_args& args) {
  const char* where = "embed";
  expect_range(where, "num_tokens", 0, INT32_MAX, args.num_tokens);
  expect_range(where, "id_stride", 1, INT32_MAX, args.id_stride);
  expect_matrix(where, "table", args.table, GLM_MATRIX_TABLE);
  expect_plain(where, "a table", *args.table);
  const int64_t tokens = args.num_tokens;
  if (tokens == 0) return;
  expect_pointer(where, "token_ids", args.token_ids);
  const glm_matrix& table = *args.table;
  HostView<const int32_t> given(where, args.token_ids,
                                (tokens - 1) * args.id_stride + 1);
  std::vector<int32_t> token_ids(static_cast<size_t>(tokens));
  for (int64_t i = 0; i < tokens; ++i)
    token_ids[static_cast<size_t>(i)] = given[i * args.id_stride];
  expect_each(where, "token_ids", 0, table.rows - 1, token_ids.data(), tokens);
  expect_pointer(where, "residual", args.residual);
  futhark_context* context = device.context;
  const auto ids =
      Array<int32_t, 1>::from_host(context, token_ids.data(), tokens);
  Array<float, 2> result(context);
  if (table.dtype == GLM_DTYPE_BF16) {
    const Array<uint16_t, 2> rows(context, static_cast<uint16_t*>(table.data),
                                  table.rows, table.columns);
    check_kernel(context, where,
                 futhark_entry_embed_bf16(context, result.slot(), ids, rows));
  } else {
    const Array<float, 2> rows(context, static_cast<float*>(table.data),
                               table.rows, table.columns);
    check_kernel(context, where,
                 futhark_entry_embed_f32(context, result.slot(), ids, rows));
  }
  result.copy_to(where, args.residual, tokens * table.columns);
}

void quantise(glm_device& device, const glm_quantise_args& args) {
  const char* where = "quantise";
  expect_range(where, "num_tokens", 0, INT32_MAX, args.num_tokens);
  expect_range(where, "width", 0, INT32_MAX, args.width);
  if (args.num_tokens == 0) return;
  expect_pointer(where, "input", args.input);
  expect_pointer(where, "codes", args.codes);
  expect_pointer(where, "row_scale", args.row_scale);
  quantise_plain(device, where, args.num_tokens, args.width, args.input,
                 args.codes, args.row_scale);
}

void swiglu_quantise(glm_device& device, const glm_swiglu_quantise_args& args) {
  const char* where = "swiglu_quantise";
  expect_range(where, "num_tokens", 0, INT32_MAX, args.num_tokens);
  expect_range(where, "width", 1, INT32_MAX / 2, args.width);
  expect_output(where, args.output);
  const int64_t tokens = args.num_tokens;
  if (tokens == 0) return;
  expect_pointer(where, "gate_up", args.gate_up);
  futhark_context* context = device.context;
  const Array<float, 2> both(context, static_cast<const float*>(args.gate_up),
                             tokens, 2 * static_cast<int64_t>(args.width));
  if (args.output.plain != nullptr) {
    Array<float, 2> plain(context);
    check_kernel(context, where,
                 futhark_entry_swiglu(context, plain.slot(), args.width, both));
    plain.copy_to(where, args.output.plain, tokens * args.width);
  }
  if (args.output.codes == nullptr) return;
  Array<uint8_t, 2> codes(context);
  Array<float, 1> scale(context);
  check_kernel(context, where,
               futhark_entry_swiglu_quantise(context, codes.slot(),
                                             scale.slot(), args.width, both));
  codes.copy_to(where, args.output.codes, tokens * args.width);
  scale.copy_to(where, args.output.row_scale, tokens);
}

namespace {

void add_norm(glm_device& device,
              const glm_reduce_add_norm_quantise_args& args) {
  const glm_activation_output& output = args.output;
  AddNorm step(device, args);
  step.run();
  if (output.codes != nullptr) step.copy_codes();
  if (output.plain == nullptr) return;
  if (output.codes == nullptr) return step.copy_plain();
  glm_reduce_add_norm_quantise_args again = args;
  again.delta = nullptr;
  again.output.codes = nullptr;
  AddNorm plain(device, again);
  plain.run();
  plain.copy_plain();
}

void add_norm_of_rank(glm_device& device,
                      glm_reduce_add_norm_quantise_args args) {
  const int64_t width = args.hidden_size;
  futhark_context* context = device.context;
  std::vector<int32_t> rows;
  for (int32_t row = device.rank; row < args.num_tokens;
       row += device.world_size)
    rows.push_back(row);
  Array<float, 2> own(context);
  if (args.delta != nullptr) {
    const auto index =
        Array<int32_t, 1>::from_host(context, rows.data(), rows.size());
    const Array<float, 2> delta(context, static_cast<const float*>(args.delta),
                                args.num_tokens, width);
    check_kernel(context, AddNorm::kWhere,
                 futhark_entry_select_rows(context, own.slot(), index, delta));
    args.delta = const_cast<void*>(own.data());
  }
  const glm_activation_output output = args.output;
  const int64_t num_rows = args.num_tokens;
  const int64_t rows_each =
      (num_rows + device.world_size - 1) / device.world_size;
  std::vector<uint8_t> codes(static_cast<size_t>(rows_each * width));
  std::vector<float> row_scale(static_cast<size_t>(rows_each));
  if (output.codes != nullptr)
    args.output = {output.plain, codes.data(), row_scale.data()};
  args.num_tokens = static_cast<int32_t>(rows.size());
  add_norm(device, args);
  if (output.codes == nullptr) return;
  const auto num_ranks = static_cast<size_t>(device.world_size);
  std::vector<uint8_t> every_code(codes.size() * num_ranks);
  std::vector<float> every_scale(row_scale.size() * num_ranks);
  all_gather(device, {rows_each,
                      2,
                      {{width, codes.data(), every_code.data()},
                       {sizeof(float), row_scale.data(), every_scale.data()}}});
  platform::copy(AddNorm::kWhere, output.codes, every_code.data(),
                 num_rows * width);
  platform::copy(AddNorm::kWhere, output.row_scale, every_scale.data(),
                 num_rows * int64_t{sizeof(float)});
}

}

void reduce_add_norm_quantise(glm_device& device,
                              const glm_reduce_add_norm_quantise_args& args) {
  const char* where = AddNorm::kWhere;
  expect_range(where, "num_tokens", 0, INT32_MAX, args.num_tokens);
  expect_range(where, "hidden_size", 1, INT32_MAX, args.hidden_size);
  expect_range(where, "is_scattered", 0, 1, args.is_scattered);
  if (args.is_scattered != 0 && args.num_tokens > 0)
    expect_range(where, "scattered num_tokens", device.world_size, INT32_MAX,
                 args.num_tokens);
  expect_output(where, args.output);
  if (args.num_tokens == 0) return;
  expect_pointer(where, "residual", args.residual);
  expect_pointer(where, "weight", args.weight);
  if (args.delta != nullptr)
    reduce(device, where, static_cast<float*>(args.delta),
           int64_t{args.num_tokens} * args.hidden_size);
  if (args.is_scattered != 0) return add_norm_of_rank(device, args);
  add_norm(device, args);
}

}
