#pragma once

#include <cutlass/cutlass.h>
#include <cutlass/gemm/device/gemm_universal_adapter.h>

#include <cute/tensor.hpp>
#include <cutlass/epilogue/collective/collective_builder.hpp>
#include <cutlass/epilogue/fusion/operations.hpp>
#include <cutlass/gemm/collective/collective_builder.hpp>
#include <cutlass/gemm/group_array_problem_shape.hpp>
#include <cutlass/gemm/kernel/gemm_universal.hpp>

#include "native/base/cuda.hpp"
#include "native/kernels/blackwell/product.hpp"
#include "native/kernels/blackwell/schedule.hpp"

namespace glm::kernels::blackwell {

namespace fusion = cutlass::epilogue::fusion;

template <typename Element>
struct Tiling {
  using Tile = cute::Shape<cute::Int<128>, cute::Int<128>,
                           cute::Int<kTileRowBytes / sizeof(Element)>>;
  using Cluster = cute::Shape<cute::_1, cute::_1, cute::_1>;
};

template <typename Tile, typename Output>
struct Scaling {
  template <template <typename> typename Operation, typename Result>
  using Compute =
      fusion::Sm90Compute<Operation, Result, float,
                          cutlass::FloatRoundStyle::round_to_nearest>;
  using OfChannels =
      fusion::Sm90ColBroadcast<0, Tile, float*, float,
                               cute::Stride<cute::_1, cute::_0, cute::_0>, 1>;
  using OfTokens =
      fusion::Sm90RowBroadcast<0, Tile, float*, float,
                               cute::Stride<cute::_0, cute::_1, cute::_0>, 1>;
  using Scaled = fusion::Sm90EVT<Compute<cutlass::multiplies, float>, OfTokens,
                                 fusion::Sm90AccFetch>;
  using Finished =
      fusion::Sm90EVT<Compute<cutlass::homogeneous_multiply_add, Output>,
                      OfChannels, Scaled, OfChannels>;
};

template <typename Element, typename Output>
struct Collectives {
  using Tile = typename Tiling<Element>::Tile;
  using Cluster = typename Tiling<Element>::Cluster;
  using Weights = cutlass::layout::RowMajor*;
  using Tokens = cutlass::layout::ColumnMajor*;
  using Stored = cutlass::layout::ColumnMajor*;
  static constexpr int kElements = kChunkBytes / sizeof(Element);
  static constexpr int kOutputs = kChunkBytes / sizeof(Output);
  using Epilogue = typename cutlass::epilogue::collective::CollectiveBuilder<
      Schedule::Architecture, cutlass::arch::OpClassTensorOp, Tile, Cluster,
      cutlass::epilogue::collective::EpilogueTileAuto, float, float, void,
      Stored, kOutputs, Output, Stored, kOutputs, Schedule::Epilogue,
      typename Scaling<Tile, Output>::Finished>::CollectiveOp;
  using Mainloop = typename cutlass::gemm::collective::CollectiveBuilder<
      Schedule::Architecture, cutlass::arch::OpClassTensorOp, Element, Weights,
      kElements, Element, Tokens, kElements, float, Tile, Cluster,
      cutlass::gemm::collective::StageCountAutoCarveout<static_cast<int>(
          sizeof(typename Epilogue::SharedStorage))>,
      Schedule::Mainloop>::CollectiveOp;
  using Problem = cutlass::gemm::GroupProblemShape<cute::Shape<int, int, int>>;
};

template <typename Element, typename Output>
struct GroupedProduct : cutlass::gemm::kernel::GemmUniversal<
                            typename Collectives<Element, Output>::Problem,
                            typename Collectives<Element, Output>::Mainloop,
                            typename Collectives<Element, Output>::Epilogue> {};

inline void expect_success(const char* where, cutlass::Status status) {
  if (status == cutlass::Status::kSuccess) return;
  check(cudaGetLastError(), where);
  throw Failure(GLM_DEVICE_ERROR, std::string(where) + ": CUTLASS: " +
                                      cutlass::cutlassGetStatusString(status));
}

template <typename Kernel>
typename Kernel::Arguments arguments_of(const Context& context,
                                        const Product& product,
                                        const Groups& groups) {
  using Element = typename Kernel::ElementA;
  using Output = typename Kernel::ElementD;
  using Pitch = typename Kernel::InternalStrideA;
  using Shape = typename Kernel::ProblemShape::UnderlyingProblemShape;
  static_assert(sizeof(Shape) == sizeof(GroupShape));
  static_assert(sizeof(Pitch) == sizeof(int64_t));
  typename Kernel::Arguments arguments;
  arguments.mode = cutlass::gemm::GemmUniversalMode::kGrouped;
  arguments.problem_shape = {product.num_groups,
                             reinterpret_cast<Shape*>(groups.shape), nullptr};
  arguments.mainloop.ptr_A = reinterpret_cast<const Element**>(groups.weights);
  arguments.mainloop.dA = reinterpret_cast<Pitch*>(groups.weight_pitch);
  arguments.mainloop.ptr_B = reinterpret_cast<const Element**>(groups.tokens);
  arguments.mainloop.dB =
      reinterpret_cast<typename Kernel::InternalStrideB*>(groups.token_pitch);
  arguments.epilogue.thread = {{groups.channel_scale, 1.0f},
                               {{groups.token_scale, 1.0f}, {}, {}},
                               {groups.bias, 0.0f},
                               {}};
  arguments.epilogue.ptr_D = reinterpret_cast<Output**>(groups.output);
  arguments.epilogue.dD =
      reinterpret_cast<typename Kernel::InternalStrideD*>(groups.output_pitch);
  arguments.hw_info.sm_count = context.num_multiprocessors;
  return arguments;
}

template <typename Element, typename Output>
void launch_grouped(const char* where, const Context& context,
                    const Product& product, const Groups& groups) {
  using Kernel = GroupedProduct<Element, Output>;
  using Adapter = cutlass::gemm::device::GemmUniversalAdapter<Kernel>;
  static_assert(sizeof(typename Kernel::InternalStrideB) == sizeof(int64_t));
  static_assert(sizeof(typename Kernel::InternalStrideD) == sizeof(int64_t));
  const typename Kernel::Arguments arguments =
      arguments_of<Kernel>(context, product, groups);
  expect_range(where, "bytes of workspace", 0, groups.workspace_bytes,
               static_cast<int64_t>(Kernel::get_workspace_size(arguments)));
  Adapter adapter;
  expect_success(
      where, adapter.initialize(arguments, groups.workspace, context.stream));
  expect_success(where, adapter.run(context.stream));
}

}
