#include <algorithm>

#include "native/base/failure.hpp"
#include "native/kernels/blackwell/operations.hpp"
#include "native/kernels/blackwell/product.hpp"
#include "native/kernels/blackwell/stored_rows.hpp"
#include "native/kernels/logits/gather.hpp"

namespace glm::kernels::blackwell {
namespace {

constexpr char kWhere[] = "blackwell logits";

Product product_of(const glm_logits_args& args, const GatherArgs& gathered,
                   int32_t row_begin) {
  Product product = describe(*args.head);
  product.output_dtype = GLM_DTYPE_F32;
  product.tokens = gathered.output;
  product.token_pitch = gathered.output_row_bytes;
  product.num_tokens = gathered.num_rows;
  product.output = args.output + int64_t{row_begin} * args.head->rows;
  product.output_pitch = args.head->rows;
  return product;
}

}

void logits(const Context& context, const glm_logits_args& args) {
  const int64_t own = product_scratch_bytes(1);
  const int64_t row_bytes = row_pitch(GLM_DTYPE_BF16, args.head->columns);
  const int64_t capacity = (context.scratch.bytes - own) / row_bytes;
  expect_range(kWhere, "rows of scratch", 1, INT64_MAX, capacity);
  const auto chunk =
      static_cast<int32_t>(std::min<int64_t>(capacity, args.num_rows));
  auto* gathered = static_cast<uint8_t*>(context.scratch.data) + own;
  for (int32_t row = 0; row < args.num_rows; row += chunk) {
    const GatherArgs gather = gather_args(
        args, row, std::min(args.num_rows - row, chunk), row_bytes, gathered);
    gather_rows(context, gather);
    multiply(context, product_of(args, gather, row),
             {context.scratch.data, own});
  }
}

}
