#pragma once

#include "device.hpp"

namespace glm::adapter {

void device_count(int32_t* count);
void group_create(const glm_group_options* options, glm_group** group);
void group_bind(glm_device& device, void* memory, int64_t bytes);
void device_open(const glm_device_options* options, glm_device** device);
void device_close(glm_device* device);
void kind_info(glm_device_info* info);
void device_info(glm_device& device, glm_device_info* info);
void allocate(glm_device& device, int32_t kind, int64_t bytes, void** memory);
void host_allocate(glm_device& device, int64_t bytes, void** memory);
void release(glm_device& device, void* memory);
void host_release(glm_device& device, void* memory);
void transfer(glm_device& device, void* destination, const void* source,
              int64_t bytes);
void synchronise(glm_device& device);
void event_create(glm_device& device, void** event);
void event_record(glm_device& device, void* event);
void event_synchronise(glm_device& device, void* event);
void event_elapsed(glm_device& device, void* begin, void* end,
                   float* milliseconds);
void event_free(glm_device& device, void* event);
void measure_read(glm_device& device, const void* memory, int64_t bytes,
                  double* bytes_per_second);
void workspace_bytes(const glm_workspace_shape* shape, int64_t* bytes);
void set_workspace(glm_device& device, const glm_workspace_shape* shape,
                   void* memory, int64_t bytes);

}
