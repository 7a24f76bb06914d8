#include "probes.h"

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  glm_message message = {{0}};
  expect_sound(loader_parse_header(data, (int64_t)size, &message), &message);
  return 0;
}
