#ifndef GLM_NCCLWRAP_H
#define GLM_NCCLWRAP_H

#include <stdint.h>

#include "status.h"

#if defined(GLM_NCCLWRAP_IMPLEMENTATION)
#define GLM_NCCLWRAP_EXPORT __attribute__((visibility("default")))
#else
#define GLM_NCCLWRAP_EXPORT
#endif

#define CW_NCCL_ID_BYTES 128

typedef struct cw_nccl_comm cw_nccl_comm;

typedef struct cw_nccl_id {
  char bytes[CW_NCCL_ID_BYTES];
} cw_nccl_id;

GLM_NCCLWRAP_EXPORT void cwNcclLastMessage(glm_message* message);

GLM_NCCLWRAP_EXPORT glm_status cwNcclGetUniqueId(cw_nccl_id* id);
GLM_NCCLWRAP_EXPORT glm_status cwNcclCommInitRank(cw_nccl_comm** comm,
                                                  int32_t world_size,
                                                  const cw_nccl_id* id,
                                                  int32_t rank);
GLM_NCCLWRAP_EXPORT glm_status cwNcclCommAbort(cw_nccl_comm* comm);
GLM_NCCLWRAP_EXPORT glm_status cwNcclCommDestroy(cw_nccl_comm* comm);
GLM_NCCLWRAP_EXPORT glm_status cwNcclAllReduce(cw_nccl_comm* comm,
                                               const void* input, void* output,
                                               int64_t count, int32_t dtype,
                                               void* stream);
GLM_NCCLWRAP_EXPORT glm_status cwNcclBroadcast(cw_nccl_comm* comm, void* data,
                                               int64_t bytes, int32_t root,
                                               void* stream);
GLM_NCCLWRAP_EXPORT glm_status cwNcclAllGather(cw_nccl_comm* comm,
                                               const void* input, void* output,
                                               int64_t input_bytes,
                                               void* stream);
GLM_NCCLWRAP_EXPORT glm_status cwNcclAllToAll(cw_nccl_comm* comm,
                                              const void* input, void* output,
                                              int64_t block_bytes,
                                              void* stream);

#endif
