#include "native/collectives/peer/turns.hpp"

#include "native/base/failure.hpp"

namespace glm::collectives {

int32_t Turns::upcoming() const {
  if (is_capturing_ && num_captured_ == 0) return kFirstOfGraph;
  return last_ == 0 ? 1 : 0;
}

int32_t Turns::next() {
  last_ = upcoming();
  if (is_capturing_) ++num_captured_;
  return last_;
}

void Turns::begin_graph() {
  is_capturing_ = true;
  num_captured_ = 0;
  last_outside_ = last_;
}

void Turns::drop_graph() {
  is_capturing_ = false;
  last_ = last_outside_;
}

int32_t Turns::end_graph() {
  const int32_t last_of_graph = num_captured_ == 0 ? -1 : last_;
  drop_graph();
  if (num_captured_ == 1)
    throw Failure(
        GLM_NOT_SUPPORTED,
        "graph_end: expected no exchanges between ranks in the graph, or "
        "at least two, got 1");
  return last_of_graph;
}

void Turns::replay(int32_t last_of_graph) {
  if (last_of_graph >= 0) last_ = last_of_graph;
}

}
