#pragma once

#include <cutlass/arch/arch.h>

#include <cutlass/epilogue/dispatch_policy.hpp>
#include <cutlass/gemm/dispatch_policy.hpp>

namespace glm::kernels::blackwell {

struct Schedule {
  using Architecture = cutlass::arch::Sm100;
  using Mainloop = cutlass::gemm::KernelPtrArrayTmaWarpSpecialized1SmSm100;
  using Epilogue = cutlass::epilogue::PtrArrayTmaWarpSpecialized1Sm;
};

}
