#include "native/base/failure.hpp"
#include "operations.hpp"

namespace glm::cpu {

void check_model(const glm_model_shape& shape) {
  page_bytes(*shape.cache);
  expect_plain("embed", "a table", *shape.embedding);
  expect_plain("logits", "a head", *shape.head);
  if (shape.router != nullptr) expect_plain("route", "a router", *shape.router);
}

}
