#include "arrays.hpp"
#include "device.hpp"
#include "host_view.hpp"
#include "operations.hpp"

namespace glm::adapter {
namespace {

constexpr char kWhere[] = "embed_norm_concat";

void expect_arrays(const glm_embed_norm_concat_args& args) {
  expect_indices(kWhere, "token_ids", 0, args.table->rows - 1, args.token_ids,
                 args.num_tokens);
  expect_pointer(kWhere, "positions", args.positions);
  expect_pointer(kWhere, "embedding_norm", args.embedding_norm);
  expect_pointer(kWhere, "hidden", args.hidden);
  expect_pointer(kWhere, "hidden_norm", args.hidden_norm);
  expect_pointer(kWhere, "output", args.output);
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
  const int64_t tokens = args.num_tokens;
  const int64_t width = args.hidden_size;
  const glm_matrix& table = *args.table;
  futhark_context* context = device.context;
  const Array<int32_t, 1> ids(context, args.token_ids, tokens);
  const Array<int32_t, 1> positions(context, args.positions, tokens);
  const Array<float, 1> embedding_norm(context, args.embedding_norm, width);
  const Array<float, 2> hidden(context, static_cast<const float*>(args.hidden),
                               tokens, width);
  const Array<float, 1> hidden_norm(context, args.hidden_norm, width);
  Array<float, 2> result(context);
  int code = 0;
  if (table.dtype == GLM_DTYPE_BF16) {
    const Array<uint16_t, 2> rows(context, static_cast<uint16_t*>(table.data),
                                  table.rows, width);
    code = futhark_entry_embed_norm_concat_bf16(
        context, result.slot(), args.epsilon, ids, positions, rows,
        embedding_norm, hidden, hidden_norm);
  } else {
    const Array<float, 2> rows(context, static_cast<float*>(table.data),
                               table.rows, width);
    code = futhark_entry_embed_norm_concat_f32(
        context, result.slot(), args.epsilon, ids, positions, rows,
        embedding_norm, hidden, hidden_norm);
  }
  check_kernel(context, kWhere, code);
  result.copy_to(kWhere, args.output, 2 * tokens * width);
}

}
