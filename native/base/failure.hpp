#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>

#include "glm/status.h"

namespace glm {

std::string one_line(const std::string& text);

class Failure : public std::runtime_error {
 public:
  Failure(glm_status status, const std::string& text)
      : std::runtime_error(one_line(text)), status_(status) {}
  glm_status status() const { return status_; }

 private:
  glm_status status_;
};

void write_message(glm_message* message, const char* text);

[[noreturn]] void reject(const char* where, const std::string& what,
                         const std::string& expected, const std::string& came);

void expect_equal(const char* where, const char* what, int64_t expected,
                  int64_t came);
void expect_range(const char* where, const char* what, int64_t low,
                  int64_t high, int64_t came);
void expect_pointer(const char* where, const char* what, const void* pointer);
void expect_each(const char* where, const char* what, int64_t low, int64_t high,
                 const int32_t* values, int64_t count);

}
