#pragma once

#include <cstdint>

namespace glm::collectives {

constexpr int32_t kNumTurns = 3;
constexpr int32_t kFirstOfGraph = kNumTurns - 1;

class Turns {
 public:
  int32_t next();
  int32_t upcoming() const;
  void begin_graph();
  int32_t end_graph();
  void drop_graph();
  void replay(int32_t last_of_graph);
  bool is_capturing() const { return is_capturing_; }

 private:
  int32_t last_ = kNumTurns - 1;
  int32_t last_outside_ = kNumTurns - 1;
  int32_t num_captured_ = 0;
  bool is_capturing_ = false;
};

}
