#include <string>

#include "native/base/failure.hpp"
#include "native/kernels/rows/width.hpp"
#include "native/kernels/sample/limits.hpp"
#include "native/kernels/shapes/shapes.hpp"

namespace glm::kernels {
namespace {

constexpr char kEmbed[] = "embed";
constexpr char kEmbedNormConcat[] = "embed_norm_concat";
constexpr char kQuantise[] = "quantise";
constexpr char kSwigluQuantise[] = "swiglu_quantise";
constexpr char kReduceAddNormQuantise[] = "reduce_add_norm_quantise";
constexpr char kSample[] = "sample";

void expect_table(const char* where, const glm_matrix* table) {
  expect_pointer(where, "table", table);
  expect_equal(where, "table role", GLM_MATRIX_TABLE, table->role);
  expect_range(where, "table rows", 1, INT32_MAX, table->rows);
  expect_range(where, "table columns", 1, INT32_MAX, table->columns);
  if (table->dtype != GLM_DTYPE_BF16 && table->dtype != GLM_DTYPE_F32)
    throw Failure(
        GLM_NOT_SUPPORTED,
        std::string(where) +
            ": expected a table with dtype F32 (0) or BF16 (1), got " +
            std::to_string(table->dtype));
  rows::expect_width(where, table->columns);
}

}

void expect_embed_shapes(const glm_embed_args& args) {
  expect_range(kEmbed, "num_tokens", 0, INT32_MAX, args.num_tokens);
  expect_range(kEmbed, "id_stride", 1, INT32_MAX, args.id_stride);
  expect_table(kEmbed, args.table);
}

void expect_embed_norm_concat_shapes(const glm_embed_norm_concat_args& args) {
  expect_range(kEmbedNormConcat, "num_tokens", 0, INT32_MAX / 2,
               args.num_tokens);
  expect_range(kEmbedNormConcat, "hidden_size", 1, INT32_MAX / 2,
               args.hidden_size);
  expect_table(kEmbedNormConcat, args.table);
  expect_equal(kEmbedNormConcat, "table columns", args.hidden_size,
               args.table->columns);
}

void expect_quantise_shapes(const glm_quantise_args& args) {
  expect_range(kQuantise, "num_tokens", 0, INT32_MAX, args.num_tokens);
  expect_range(kQuantise, "width", 0, INT32_MAX, args.width);
  rows::expect_width(kQuantise, args.width);
}

void expect_swiglu_quantise_shapes(const glm_swiglu_quantise_args& args) {
  expect_range(kSwigluQuantise, "num_tokens", 0, INT32_MAX, args.num_tokens);
  expect_range(kSwigluQuantise, "width", 1, INT32_MAX / 2, args.width);
  rows::expect_width(kSwigluQuantise, args.width);
}

void expect_reduce_add_norm_quantise_shapes(
    const glm_reduce_add_norm_quantise_args& args, int32_t world_size) {
  expect_range(kReduceAddNormQuantise, "num_tokens", 0, INT32_MAX,
               args.num_tokens);
  expect_range(kReduceAddNormQuantise, "hidden_size", 1, INT32_MAX,
               args.hidden_size);
  expect_range(kReduceAddNormQuantise, "is_scattered", 0, 1, args.is_scattered);
  rows::expect_width(kReduceAddNormQuantise, args.hidden_size);
  if (world_size > 1 && args.hidden_size > rows::kMaxReducedWidth)
    throw Failure(GLM_NOT_SUPPORTED,
                  std::string(kReduceAddNormQuantise) +
                      ": hidden_size with several ranks: expected at most " +
                      std::to_string(rows::kMaxReducedWidth) + ", got " +
                      std::to_string(args.hidden_size));
}

void expect_sample_shapes(const glm_sample_args& args) {
  expect_range(kSample, "num_rows", 0, INT32_MAX / sampling::kRowBlocks,
               args.num_rows);
  expect_range(kSample, "vocab_size", 1, INT32_MAX, args.vocab_size);
  expect_range(kSample, "num_count_rows", 0, INT32_MAX, args.num_count_rows);
  expect_range(kSample, "num_masks", 0, INT32_MAX, args.num_masks);
  expect_range(kSample, "num_biases", 0, INT32_MAX, args.num_biases);
  if (args.vocab_size > sampling::kMaxVocab)
    throw Failure(GLM_NOT_SUPPORTED, "sample: vocab_size: expected at most " +
                                         std::to_string(sampling::kMaxVocab) +
                                         ", got " +
                                         std::to_string(args.vocab_size));
}

}
