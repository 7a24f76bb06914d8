#define GLM_NCCLWRAP_IMPLEMENTATION
extern "C" {
#include "glm/ncclwrap.h"

#include "glm/backend.h"
}

#include <nccl.h>

#include <cstring>

#include "native/base/call_report.hpp"

static_assert(sizeof(cw_nccl_id) == sizeof(ncclUniqueId));

namespace {

glm_status status_of(ncclResult_t result) {
  switch (result) {
    case ncclSuccess:
      return GLM_OK;
    case ncclInvalidArgument:
    case ncclInvalidUsage:
      return GLM_INVALID_ARGUMENT;
    default:
      return GLM_DEVICE_ERROR;
  }
}

glm_status report(const char* call, ncclResult_t result,
                  ncclComm_t comm = nullptr) {
  const char* detail = result == ncclSuccess ? "" : ncclGetLastError(comm);
  return glm::report(call, {status_of(result), static_cast<int>(result),
                            ncclGetErrorString(result), detail});
}

ncclComm_t native(cw_nccl_comm* comm) {
  return reinterpret_cast<ncclComm_t>(comm);
}

ncclResult_t exchange(const void* input, void* output, size_t bytes,
                      ncclComm_t comm, cudaStream_t stream) {
  int world_size = 0;
  ncclResult_t result = ncclCommCount(comm, &world_size);
  if (result == ncclSuccess) result = ncclGroupStart();
  if (result != ncclSuccess) return result;
  for (int peer = 0; peer < world_size && result == ncclSuccess; ++peer) {
    const size_t offset = static_cast<size_t>(peer) * bytes;
    result = ncclSend(static_cast<const char*>(input) + offset, bytes, ncclInt8,
                      peer, comm, stream);
    if (result == ncclSuccess)
      result = ncclRecv(static_cast<char*>(output) + offset, bytes, ncclInt8,
                        peer, comm, stream);
  }
  const ncclResult_t ended = ncclGroupEnd();
  return result != ncclSuccess ? result : ended;
}

}

extern "C" {

void cwNcclLastMessage(glm_message* message) {
  glm::copy_last_message(message);
}

glm_status cwNcclGetUniqueId(cw_nccl_id* id) {
  return report("cwNcclGetUniqueId",
                ncclGetUniqueId(reinterpret_cast<ncclUniqueId*>(id)));
}

glm_status cwNcclCommInitRank(cw_nccl_comm** comm, int32_t world_size,
                              const cw_nccl_id* id, int32_t rank) {
  const char* call = "cwNcclCommInitRank";
  if (id == nullptr) return glm::report_argument(call, "id is null");
  ncclUniqueId unique = {};
  std::memcpy(&unique, id, sizeof unique);
  return report(call, ncclCommInitRank(reinterpret_cast<ncclComm_t*>(comm),
                                       world_size, unique, rank));
}

glm_status cwNcclCommAbort(cw_nccl_comm* comm) {
  return report("cwNcclCommAbort", ncclCommAbort(native(comm)));
}

glm_status cwNcclCommDestroy(cw_nccl_comm* comm) {
  return report("cwNcclCommDestroy", ncclCommDestroy(native(comm)));
}

glm_status cwNcclAllReduce(cw_nccl_comm* comm, const void* input, void* output,
                           int64_t count, int32_t dtype, void* stream) {
  const char* call = "cwNcclAllReduce";
  if (count < 0) return glm::report_argument(call, "count is negative");
  if (dtype != GLM_DTYPE_F32 && dtype != GLM_DTYPE_BF16)
    return glm::report_argument(call, "dtype: expected F32 (0) or BF16 (1)");
  const ncclResult_t result =
      ncclAllReduce(input, output, static_cast<size_t>(count),
                    dtype == GLM_DTYPE_F32 ? ncclFloat32 : ncclBfloat16,
                    ncclSum, native(comm), static_cast<cudaStream_t>(stream));
  return report(call, result, native(comm));
}

glm_status cwNcclBroadcast(cw_nccl_comm* comm, void* data, int64_t bytes,
                           int32_t root, void* stream) {
  const char* call = "cwNcclBroadcast";
  if (bytes < 0) return glm::report_argument(call, "bytes is negative");
  return report(
      call,
      ncclBroadcast(data, data, static_cast<size_t>(bytes), ncclInt8, root,
                    native(comm), static_cast<cudaStream_t>(stream)),
      native(comm));
}

glm_status cwNcclAllGather(cw_nccl_comm* comm, const void* input, void* output,
                           int64_t input_bytes, void* stream) {
  const char* call = "cwNcclAllGather";
  if (input_bytes < 0) return glm::report_argument(call, "bytes is negative");
  return report(
      call,
      ncclAllGather(input, output, static_cast<size_t>(input_bytes), ncclInt8,
                    native(comm), static_cast<cudaStream_t>(stream)),
      native(comm));
}

glm_status cwNcclAllToAll(cw_nccl_comm* comm, const void* input, void* output,
                          int64_t block_bytes, void* stream) {
  const char* call = "cwNcclAllToAll";
  if (block_bytes < 0) return glm::report_argument(call, "bytes is negative");
  return report(call,
                exchange(input, output, static_cast<size_t>(block_bytes),
                         native(comm), static_cast<cudaStream_t>(stream)),
                native(comm));
}
}
