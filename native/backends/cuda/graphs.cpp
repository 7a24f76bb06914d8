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

bool leads(const glm_device& device) {
  return device.peers == nullptr || device.peers->leads();
}

void meet(const glm_device& device, const char* where) {
  if (device.peers != nullptr) device.peers->meet_on_gpu(where);
}

void expect_none_reserved(const glm_device& device, const char* where) {
  if (device.peers != nullptr) device.peers->expect_none_reserved(where);
}

cudaGraph_t ended_capture(const glm_device& device, const char* where) {
  cudaGraph_t captured = nullptr;
  const cudaError_t error = cudaStreamEndCapture(device.stream, &captured);
  if (error != cudaErrorStreamCaptureInvalidated) check(error, where);
  if (captured != nullptr) return captured;
  cudaGetLastError();
  throw Failure(GLM_INVALID_ARGUMENT,
                "graph_end: an operation that cannot be captured ended the "
                "capture");
}

void meet_in_capture(const glm_device& device, const char* where) {
  try {
    meet(device, where);
  } catch (const Failure&) {
    cudaGraph_t captured = nullptr;
    if (leads(device)) cudaStreamEndCapture(device.stream, &captured);
    if (captured != nullptr) cudaGraphDestroy(captured);
    cudaGetLastError();
    throw;
  }
}

cudaGraphExec_t executable_of(const glm_device& device, const char* where) {
  const cudaGraph_t captured = ended_capture(device, where);
  cudaGraphExec_t executable = nullptr;
  const cudaError_t error = cudaGraphInstantiate(&executable, captured, 0);
  cudaGraphDestroy(captured);
  check(error, where);
  check(cudaGraphUpload(executable, device.stream), where);
  return executable;
}

void drop_turns(glm_device& device) {
  if (device.peers != nullptr) device.peers->drop_graph();
}

void drop_capture(glm_device& device, const char* where) {
  drop_turns(device);
  if (leads(device)) cudaGraphDestroy(ended_capture(device, where));
}

void end_capture(glm_device& device, const char* where, Graph& made) {
  meet_in_capture(device, where);
  if (leads(device)) made.executable = executable_of(device, where);
  meet(device, where);
}

}

void graph_begin(glm_device& device) {
  const char* where = "graph_begin";
  expect_no_capture(device, where);
  expect_none_reserved(device, where);
  meet(device, where);
  if (leads(device))
    check(
        cudaStreamBeginCapture(device.stream, cudaStreamCaptureModeThreadLocal),
        where);
  meet_in_capture(device, where);
  device.is_capturing = true;
  if (device.peers != nullptr) device.peers->begin_graph();
}

void graph_end(glm_device& device, void** graph) {
  const char* where = "graph_end";
  expect_equal(where, "captures in progress", 1, device.is_capturing);
  device.is_capturing = false;
  if (graph == nullptr) return drop_capture(device, where);
  auto made = std::make_unique<Graph>();
  try {
    end_capture(device, where, *made);
  } catch (const Failure&) {
    drop_turns(device);
    throw;
  }
  if (device.peers != nullptr) made->last_turn = device.peers->end_graph();
  *graph = made.release();
}

void graph_replay(glm_device& device, void* graph) {
  const char* where = "graph_replay";
  expect_no_capture(device, where);
  expect_none_reserved(device, where);
  expect_pointer(where, "graph", graph);
  const Graph& made = *static_cast<Graph*>(graph);
  meet(device, where);
  if (leads(device))
    check(cudaGraphLaunch(made.executable, device.stream), where);
  meet(device, where);
  if (device.peers != nullptr) device.peers->replay_graph(made.last_turn);
}

void graph_free(glm_device& device, void* graph) {
  expect_no_capture(device, "graph_free");
  if (graph == nullptr) return;
  check_call(cwCudaStreamSync(wrapped(device.stream)), "graph_free");
  const std::unique_ptr<Graph> made(static_cast<Graph*>(graph));
  if (made->executable != nullptr)
    check(cudaGraphExecDestroy(made->executable), "graph_free");
}

}
