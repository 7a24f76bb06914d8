#include "probes.h"

enum { LENGTH_BYTES = 8, DATA_SIZE_BYTES = 2 };

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < DATA_SIZE_BYTES) return 0;
  const size_t header_size = size - DATA_SIZE_BYTES;
  const size_t data_size = data[0] + 256u * data[1];
  const size_t total = LENGTH_BYTES + header_size + data_size;
  uint8_t* file = calloc(total, 1);
  if (file == NULL) abort();
  for (int i = 0; i < LENGTH_BYTES; ++i)
    file[i] = (uint8_t)((uint64_t)header_size >> (8 * i));
  memcpy(file + LENGTH_BYTES, data + DATA_SIZE_BYTES, header_size);
  glm_message message = {{0}};
  expect_sound(loader_parse_header(file, (int64_t)total, &message), &message);
  free(file);
  return 0;
}
