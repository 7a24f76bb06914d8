#include "native/base/local_experts.hpp"

#include <string>

#include "native/base/failure.hpp"

namespace glm {

void expect_local_experts(const char* where, int32_t most,
                          const glm_experts_args& args) {
  expect_range(where, "num_local_experts", 0, most, args.num_local_experts);
  expect_range(where, "shared_expert_id", -1, INT32_MAX, args.shared_expert_id);
  if (args.shared_expert_id < 0) return;
  expect_range(where, "num_local_experts with a shared one", 1, most,
               args.num_local_experts);
  const int64_t index = int64_t{args.shared_expert_id} - args.expert_begin;
  if (index >= 0 && index < args.num_local_experts - 1)
    reject(where, "shared_expert_id", "no local routed expert's id",
           std::to_string(args.shared_expert_id));
}

}
