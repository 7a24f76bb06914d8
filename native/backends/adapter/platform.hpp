#pragma once

#include <cstdint>

#include "device.hpp"

namespace glm::adapter::platform {

extern const char kKind[];

int32_t num_devices();
int32_t device_of_rank(int32_t rank);
void open(glm_device& device, int32_t num_threads);
void enter(glm_device& device);
void describe(glm_device* device, glm_device_info* info);
double read_seconds(glm_device& device, const void* memory, int64_t bytes,
                    int64_t repeats);

void* allocate(int64_t bytes);
void release(void* memory);
void copy(const char* where, void* destination, const void* source,
          int64_t bytes);
void clear(const char* where, void* memory, int64_t bytes);

}
