#include "memory_info.hpp"

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <limits>
#include <string>

namespace glm::cpu {
namespace {

constexpr int64_t kUnlimited = std::numeric_limits<int64_t>::max();
const char kGroupRoot[] = "/sys/fs/cgroup";

struct Limit {
  int64_t total;
  int64_t available;
};

int64_t read_number(const std::string& path, int64_t otherwise) {
  std::ifstream file(path);
  int64_t value = 0;
  return file >> value ? value : otherwise;
}

Limit machine_limit() {
  std::ifstream file("/proc/meminfo");
  Limit limit = {0, 0};
  std::string name;
  int64_t kibibytes = 0;
  while (file >> name >> kibibytes) {
    if (name == "MemTotal:") limit.total = kibibytes * 1024;
    if (name == "MemAvailable:") limit.available = kibibytes * 1024;
    file.ignore(kUnlimited, '\n');
  }
  return limit;
}

void apply_group(const std::string& folder, const char* limit_name,
                 const char* usage_name, Limit* limit) {
  const int64_t total = read_number(folder + "/" + limit_name, kUnlimited);
  if (total == kUnlimited) return;
  const int64_t used = read_number(folder + "/" + usage_name, 0);
  limit->total = std::min(limit->total, total);
  limit->available =
      std::min(limit->available, std::max<int64_t>(0, total - used));
}

void apply_unified_groups(std::string path, Limit* limit) {
  while (true) {
    apply_group(kGroupRoot + path, "memory.max", "memory.current", limit);
    const size_t slash = path.rfind('/');
    if (slash == std::string::npos) return;
    path.resize(slash);
  }
}

std::string unified_group_path() {
  std::ifstream file("/proc/self/cgroup");
  std::string line;
  while (std::getline(file, line))
    if (line.rfind("0::", 0) == 0) return line.substr(3);
  return "";
}

}

void set_memory_info(glm_device_info* info) {
  Limit limit = machine_limit();
  apply_unified_groups(unified_group_path(), &limit);
  apply_group(std::string(kGroupRoot) + "/memory", "memory.limit_in_bytes",
              "memory.usage_in_bytes", &limit);
  info->memory_total_bytes = limit.total;
  info->memory_free_bytes = limit.available;
}

void set_processor_name(glm_device_info* info) {
  std::ifstream file("/proc/cpuinfo");
  std::string line;
  std::string name = "processor";
  while (std::getline(file, line)) {
    const size_t colon = line.find(": ");
    if (line.rfind("model name", 0) != 0 || colon == std::string::npos)
      continue;
    name = line.substr(colon + 2);
    break;
  }
  std::snprintf(info->name, sizeof info->name, "CPU, %s", name.c_str());
}

}
