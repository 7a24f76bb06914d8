#ifndef GLM_CUDAWRAP_H
#define GLM_CUDAWRAP_H

#include <stdint.h>

#include "status.h"

#if defined(GLM_CUDAWRAP_IMPLEMENTATION)
#define GLM_CUDAWRAP_EXPORT __attribute__((visibility("default")))
#else
#define GLM_CUDAWRAP_EXPORT
#endif

typedef struct cw_stream cw_stream;
typedef struct cw_event cw_event;

GLM_CUDAWRAP_EXPORT void cwCudaLastMessage(glm_message* message);

GLM_CUDAWRAP_EXPORT glm_status cwCudaDeviceCount(int32_t* count);
GLM_CUDAWRAP_EXPORT glm_status cwCudaSetDevice(int32_t device);
GLM_CUDAWRAP_EXPORT glm_status cwCudaDeviceSync(void);
GLM_CUDAWRAP_EXPORT glm_status cwCudaMemInfo(int64_t* free_bytes,
                                             int64_t* total_bytes);

GLM_CUDAWRAP_EXPORT glm_status cwCudaMalloc(void** memory, int64_t bytes);
GLM_CUDAWRAP_EXPORT glm_status cwCudaFree(void* memory);
GLM_CUDAWRAP_EXPORT glm_status cwCudaMallocHost(void** memory, int64_t bytes);
GLM_CUDAWRAP_EXPORT glm_status cwCudaFreeHost(void* memory);

GLM_CUDAWRAP_EXPORT glm_status cwCudaMemcpyH2D(void* destination,
                                               const void* source,
                                               int64_t bytes,
                                               cw_stream* stream);
GLM_CUDAWRAP_EXPORT glm_status cwCudaMemcpyD2H(void* destination,
                                               const void* source,
                                               int64_t bytes,
                                               cw_stream* stream);
GLM_CUDAWRAP_EXPORT glm_status cwCudaMemcpyD2D(void* destination,
                                               const void* source,
                                               int64_t bytes,
                                               cw_stream* stream);
GLM_CUDAWRAP_EXPORT glm_status cwCudaMemset(void* destination, int32_t value,
                                            int64_t bytes, cw_stream* stream);

GLM_CUDAWRAP_EXPORT glm_status cwCudaStreamCreate(cw_stream** stream);
GLM_CUDAWRAP_EXPORT glm_status cwCudaStreamDestroy(cw_stream* stream);
GLM_CUDAWRAP_EXPORT glm_status cwCudaStreamSync(cw_stream* stream);

GLM_CUDAWRAP_EXPORT glm_status cwCudaEventCreate(cw_event** event);
GLM_CUDAWRAP_EXPORT glm_status cwCudaEventDestroy(cw_event* event);
GLM_CUDAWRAP_EXPORT glm_status cwCudaEventRecord(cw_event* event,
                                                 cw_stream* stream);
GLM_CUDAWRAP_EXPORT glm_status cwCudaEventQuery(cw_event* event,
                                                int32_t* has_passed);
GLM_CUDAWRAP_EXPORT glm_status cwCudaEventSync(cw_event* event);
GLM_CUDAWRAP_EXPORT glm_status cwCudaEventElapsed(cw_event* begin,
                                                  cw_event* end,
                                                  float* milliseconds);

#endif
