#include "native/base/failure.hpp"

#include <cstdio>
#include <sstream>

namespace glm {

std::string one_line(const std::string& text) {
  std::istringstream words(text);
  std::string word, line;
  while (words >> word) line += (line.empty() ? "" : " ") + word;
  return line;
}

void write_message(glm_message* message, const char* text) {
  if (message == nullptr) return;
  std::snprintf(message->text, sizeof message->text, "%s", text);
}

void reject(const char* where, const std::string& what,
            const std::string& expected, const std::string& came) {
  throw Failure(GLM_INVALID_ARGUMENT, std::string(where) + ": " + what +
                                          ": expected " + expected + ", got " +
                                          came);
}

void expect_equal(const char* where, const char* what, int64_t expected,
                  int64_t came) {
  if (expected == came) return;
  reject(where, what, std::to_string(expected), std::to_string(came));
}

void expect_range(const char* where, const char* what, int64_t low,
                  int64_t high, int64_t came) {
  if (low <= came && came <= high) return;
  reject(where, what, std::to_string(low) + " to " + std::to_string(high),
         std::to_string(came));
}

void expect_pointer(const char* where, const char* what, const void* pointer) {
  if (pointer == nullptr) reject(where, what, "a pointer", "null");
}

void expect_each(const char* where, const char* what, int64_t low, int64_t high,
                 const int32_t* values, int64_t count) {
  if (count > 0) expect_pointer(where, what, values);
  for (int64_t i = 0; i < count; ++i) {
    if (low <= values[i] && values[i] <= high) continue;
    reject(where, std::string(what) + "[" + std::to_string(i) + "]",
           std::to_string(low) + " to " + std::to_string(high),
           std::to_string(values[i]));
  }
}

}
