#pragma once

#include <string>

namespace glm::adapter {

class ProgramCache {
 public:
  explicit ProgramCache(int32_t ordinal);

  const char* path() const { return own_.empty() ? nullptr : own_.c_str(); }
  void keep() const;

 private:
  std::string kept_;
  std::string own_;
};

}
