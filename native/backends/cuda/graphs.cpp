#include <memory>

#include "native/backends/cuda/checked.hpp"
#include "native/backends/cuda/lifecycle.hpp"
#include "native/base/cuda.hpp"
#include "native/base/failure.hpp"

namespace glm::cuda {
namespace {

struct Graph {
  cudaGraphExec_t executable = nullptr;
  int32_t last_turn = -1;
};

cudaGraph_t ended_capture(glm_device& device, const char* where) {
  cudaGraph_t captured = nullptr;
  device.is_capturing = false;
  const cudaError_t error = cudaStreamEndCapture(device.stream, &captured);
  if (error != cudaErrorStreamCaptureInvalidated) check(error, where);
  if (captured != nullptr) return captured;
  cudaGetLastError();
  throw Failure(GLM_INVALID_ARGUMENT,
                "graph_end: expected operations that can be captured, got one "
                "that ended the capture");
}

}

void graph_begin(glm_device& device) {
  const char* where = "graph_begin";
  expect_no_capture(device, where);
  check(cudaStreamBeginCapture(device.stream, cudaStreamCaptureModeThreadLocal),
        where);
  device.is_capturing = true;
  if (device.peers != nullptr) device.peers->turns().begin_graph();
}

void graph_end(glm_device& device, void** graph) {
  const char* where = "graph_end";
  expect_equal(where, "captures that were begun", 1, device.is_capturing);
  auto made = std::make_unique<Graph>();
  const cudaGraph_t captured = ended_capture(device, where);
  const cudaError_t error =
      graph == nullptr ? cudaSuccess
                       : cudaGraphInstantiate(&made->executable, captured, 0);
  cudaGraphDestroy(captured);
  if (device.peers != nullptr)
    made->last_turn = device.peers->turns().end_graph();
  check(error, where);
  if (graph == nullptr) return;
  check(cudaGraphUpload(made->executable, device.stream), where);
  *graph = made.release();
}

void graph_replay(glm_device& device, void* graph) {
  expect_no_capture(device, "graph_replay");
  expect_pointer("graph_replay", "graph", graph);
  const Graph& made = *static_cast<Graph*>(graph);
  check(cudaGraphLaunch(made.executable, device.stream), "graph_replay");
  if (device.peers != nullptr) device.peers->turns().replay(made.last_turn);
}

void graph_free(glm_device& device, void* graph) {
  expect_no_capture(device, "graph_free");
  if (graph == nullptr) return;
  check_call(cwCudaStreamSync(wrapped(device.stream)), "graph_free");
  const std::unique_ptr<Graph> made(static_cast<Graph*>(graph));
  check(cudaGraphExecDestroy(made->executable), "graph_free");
}

}
