#pragma once

#include "native/backends/cuda/device.hpp"

namespace glm::cuda {

void device_count(int32_t* count);
void group_create(const glm_group_options* options, glm_group** group);
void group_bind(glm_device& device, void* memory, int64_t bytes);
void device_open(const glm_device_options* options, glm_device** device);
void device_close(glm_device* device);
void device_info(glm_device& device, glm_device_info* info);

void allocate(glm_device& device, int32_t kind, int64_t bytes, void** memory);
void release(glm_device& device, void* memory);
void host_allocate(glm_device& device, int64_t bytes, void** memory);
void host_release(glm_device& device, void* memory);
void upload(glm_device& device, void* destination, const void* source,
            int64_t bytes);
void download(glm_device& device, void* destination, const void* source,
              int64_t bytes);
void download_begin(glm_device& device, void* destination, const void* source,
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

void set_workspace(glm_device& device, const glm_workspace_shape* shape,
                   void* memory, int64_t bytes);

void place_rows(glm_device& device, const glm_place_rows_args& args);
void place_vector(glm_device& device, const glm_place_vector_args& args);
void save_pages(glm_device& device, const glm_transfer_pages_args& args);
void restore_pages(glm_device& device, const glm_transfer_pages_args& args);

void all_gather(glm_device& device, const glm_all_gather_args& args);
void all_to_all(glm_device& device, const glm_all_to_all_args& args);

void graph_begin(glm_device& device);
void graph_end(glm_device& device, void** graph);
void graph_replay(glm_device& device, void* graph);
void graph_free(glm_device& device, void* graph);

}
