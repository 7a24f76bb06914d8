#include "native/kernels/stream/token_map.hpp"

#include "native/kernels/rows/tensor_map.hpp"

namespace glm::kernels::stream {

bool allows_token_map(const TokenRows& tokens) {
  return tokens.row_bytes % kChunkBytes == 0 &&
         reinterpret_cast<uintptr_t>(tokens.data) % kChunkBytes == 0;
}

CUtensorMap token_map(const char* where, const TokenRows& tokens,
                      int32_t columns) {
  RowBoxes boxes;
  boxes.data = tokens.data;
  boxes.element = CU_TENSOR_MAP_DATA_TYPE_UINT8;
  boxes.columns = tokens.row_bytes;
  boxes.num_rows = tokens.num_rows;
  boxes.stride_bytes = tokens.row_bytes;
  boxes.box_columns = kTileRowBytes;
  boxes.box_rows = columns;
  boxes.promotion = CU_TENSOR_MAP_L2_PROMOTION_L2_128B;
  return tensor_map(where, boxes);
}

}
