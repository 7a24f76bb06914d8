#include "native/base/cuda.hpp"
#include "native/kernels/blackwell/operations.hpp"
#include "native/kernels/blackwell/stored_rows.hpp"
#include "native/kernels/placement/placement.hpp"

namespace glm::kernels::blackwell {
namespace {

constexpr char kWhere[] = "blackwell route";

}

const uint8_t* packed_router(const Context& context, const glm_matrix& router) {
  expect_range(kWhere, "bytes of scratch",
               router_scratch_bytes(router.rows, router.columns), INT64_MAX,
               context.scratch.bytes);
  auto* border = static_cast<uint8_t*>(context.scratch.data);
  uint8_t* tiles = border + kBorderBytes;
  glm_matrix packed = router;
  packed.data = tiles;
  pack_tiles(context, {packed, 0, router.rows, router.data,
                       row_pitch(router.dtype, router.columns)});
  check(cudaMemsetAsync(border, 0, kChunkBytes, context.stream), kWhere);
  return tiles;
}

}
