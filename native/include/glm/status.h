#ifndef GLM_STATUS_H
#define GLM_STATUS_H

#include <stdint.h>

#define GLM_MESSAGE_CAPACITY 1024

typedef int32_t glm_status;

enum {
  GLM_OK = 0,
  GLM_INVALID_ARGUMENT = 1,
  GLM_INVALID_CHECKPOINT = 2,
  GLM_OUT_OF_MEMORY = 3,
  GLM_NOT_SUPPORTED = 4,
  GLM_NOT_FOUND = 5,
  GLM_IO_ERROR = 6,
  GLM_DEVICE_ERROR = 7,
  GLM_NUMERIC_ERROR = 8,
  GLM_CANCELLED = 9,
  GLM_QUEUE_FULL = 10,
  GLM_INTERNAL_ERROR = 11
};

typedef struct glm_message {
  char text[GLM_MESSAGE_CAPACITY];
} glm_message;

#endif
