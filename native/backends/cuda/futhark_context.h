#pragma once

#include <cuda.h>
#include <stddef.h>

#if CUDA_VERSION >= 13000
#undef cuCtxCreate
#define cuCtxCreate(context, flags, device) \
  cuCtxCreate_v4(context, NULL, flags, device)
#endif
