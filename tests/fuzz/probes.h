#ifndef GLM_FUZZ_PROBES_H
#define GLM_FUZZ_PROBES_H

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "glm/status.h"

glm_status loader_parse_header(const uint8_t* data, int64_t size,
                               glm_message* message);
glm_status loader_parse_index(const uint8_t* data, int64_t size,
                              glm_message* message);
glm_status loader_parse_config(const uint8_t* data, int64_t size,
                               glm_message* message);
glm_status loader_match_pattern(const uint8_t* pattern, int64_t pattern_size,
                                const uint8_t* value, int64_t value_size,
                                int32_t* is_match, glm_message* message);

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

static inline int status_is_known(glm_status status) {
  return status == GLM_OK || status == GLM_INVALID_CHECKPOINT ||
         status == GLM_NOT_SUPPORTED;
}

static inline void expect_sound(glm_status status, const glm_message* message) {
  if (!status_is_known(status)) abort();
  if (status == GLM_OK) return;
  if (memchr(message->text, 0, sizeof message->text) == NULL) abort();
  if (message->text[0] == 0) abort();
}

#endif
