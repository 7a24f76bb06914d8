#include <algorithm>
#include <vector>

#include "arrays.hpp"
#include "device.hpp"
#include "operations.hpp"

namespace glm::cpu {
namespace {

constexpr char kWhere[] = "embed_norm_concat";

void expect_arrays(const glm_embed_norm_concat_args& args) {
  expect_each(kWhere, "token_ids", 0, args.table->rows - 1, args.token_ids,
              args.num_tokens);
  expect_pointer(kWhere, "positions", args.positions);
  expect_pointer(kWhere, "embedding_norm", args.embedding_norm);
  expect_pointer(kWhere, "hidden", args.hidden);
  expect_pointer(kWhere, "hidden_norm", args.hidden_norm);
  expect_pointer(kWhere, "output", args.output);
}

std::vector<float> embeddings(glm_device& device,
                              const glm_embed_norm_concat_args& args) {
  const int64_t width = args.hidden_size;
  std::vector<float> rows(static_cast<size_t>(args.num_tokens * width));
  embed(device, {args.num_tokens, 1, args.token_ids, args.table, rows.data()});
  for (int64_t row = 0; row < args.num_tokens; ++row)
    if (args.positions[row] == 0)
      std::fill_n(rows.begin() + row * width, width, 0.0f);
  return rows;
}

void norm_half(glm_device& device, const glm_embed_norm_concat_args& args,
               const float* rows, const float* weight, float* half) {
  const int64_t width = args.hidden_size;
  futhark_context* context = device.context;
  const Array<float, 2> given(context, rows, args.num_tokens, width);
  const Array<float, 1> weights(context, weight, width);
  Array<float, 2> normed(context);
  check_kernel(
      context, kWhere,
      futhark_entry_norm(context, normed.slot(), args.epsilon, weights, given));
  std::vector<float> values(static_cast<size_t>(args.num_tokens * width));
  normed.copy_to(kWhere, values.data(), args.num_tokens * width);
  for (int64_t row = 0; row < args.num_tokens; ++row)
    std::copy_n(values.data() + row * width, width, half + 2 * row * width);
}

}

void embed_norm_concat(glm_device& device,
                       const glm_embed_norm_concat_args& args) {
  expect_range(kWhere, "num_tokens", 0, INT32_MAX / 2, args.num_tokens);
  expect_range(kWhere, "hidden_size", 1, INT32_MAX / 2, args.hidden_size);
  expect_matrix(kWhere, "table", args.table, GLM_MATRIX_TABLE);
  expect_plain(kWhere, "a table", *args.table);
  expect_equal(kWhere, "table columns", args.hidden_size, args.table->columns);
  if (args.num_tokens == 0) return;
  expect_arrays(args);
  auto* output = static_cast<float*>(args.output);
  norm_half(device, args, embeddings(device, args).data(), args.embedding_norm,
            output);
  norm_half(device, args, static_cast<const float*>(args.hidden),
            args.hidden_norm, output + args.hidden_size);
}

}
