#include "program_cache.hpp"

#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <filesystem>

#include "nvidia_driver.hpp"

namespace glm::adapter {
namespace {

std::filesystem::path cache_folder() {
  const char* chosen = std::getenv("XDG_CACHE_HOME");
  if (chosen != nullptr && chosen[0] == '/')
    return std::filesystem::path(chosen) / "glm-engine";
  const char* home = std::getenv("HOME");
  if (home == nullptr || home[0] != '/') return {};
  return std::filesystem::path(home) / ".cache" / "glm-engine";
}

}

ProgramCache::ProgramCache(int32_t ordinal) {
  static std::atomic<int> number{0};
  const std::filesystem::path folder = cache_folder();
  std::error_code failed;
  if (!folder.empty()) std::filesystem::create_directories(folder, failed);
  if (!folder.empty() && !failed)
    kept_ = folder / ("futhark-sm" + std::to_string(capability(ordinal)));
  const bool is_kept = !kept_.empty() && std::filesystem::exists(kept_, failed);
  if (!is_kept)
    std::fprintf(stderr,
                 "glm: compiling the kernels for this GPU (up to 30 s), %s\n",
                 kept_.empty() ? "each time, because there is no cache folder"
                               : ("kept in " + kept_).c_str());
  if (kept_.empty()) return;
  own_ = kept_ + "." + std::to_string(getpid()) + "." +
         std::to_string(number.fetch_add(1));
  if (is_kept) std::filesystem::copy_file(kept_, own_, failed);
}

void ProgramCache::keep() const {
  if (own_.empty()) return;
  std::error_code failed;
  std::filesystem::rename(own_, kept_, failed);
  if (failed) std::filesystem::remove(own_, failed);
}

}
