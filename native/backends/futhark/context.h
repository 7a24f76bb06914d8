#include <cuda.h>
#include <cuda_runtime_api.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

_Noreturn void glm_futhark_exit(int code);
int glm_futhark_message(FILE* stream, const char* format, va_list arguments);

static inline int glm_print_nothing(FILE* stream, const char* format, ...) {
  (void)stream;
  (void)format;
  return 0;
}

static inline CUresult glm_take_primary_context(CUcontext* context,
                                                CUdevice device) {
  const CUresult taken = cuDevicePrimaryCtxRetain(context, device);
  return taken != CUDA_SUCCESS ? taken : cuCtxSetCurrent(*context);
}

static inline CUresult glm_give_primary_context(void) {
  CUdevice device;
  const CUresult found = cuCtxGetDevice(&device);
  return found != CUDA_SUCCESS ? found : cuDevicePrimaryCtxRelease(device);
}

#undef cuCtxCreate
#undef cuCtxDestroy
#define cuCtxCreate(context, flags, device) \
  glm_take_primary_context(context, device)
#define cuCtxDestroy(context) glm_give_primary_context()
#define cudaEventCreate(event) cuEventCreate(event, 0)
#define exit(code) glm_futhark_exit(code)
#define fprintf(...) glm_print_nothing(__VA_ARGS__)
#define vfprintf(stream, format, arguments) \
  glm_futhark_message(stream, format, arguments)
