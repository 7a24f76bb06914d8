#include "probes.h"

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  glm_message message = {{0}};
  int32_t is_match = 0;
  const uint8_t* end = memchr(data, 0, size);
  const size_t pattern_size = end == NULL ? size : (size_t)(end - data);
  const size_t skipped = end == NULL ? size : pattern_size + 1;
  const glm_status status =
      loader_match_pattern(data, (int64_t)pattern_size, data + skipped,
                           (int64_t)(size - skipped), &is_match, &message);
  expect_sound(status, &message);
  return 0;
}
