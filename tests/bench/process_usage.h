// What a process has used up to now, from /proc: for the load generators, of the broker that they load.
#pragma once

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

namespace ph::bench {

struct Usage {
  double cpu_seconds = 0;
  double rss_mib = 0;
  double peak_mib = 0;  // the most that was resident
};

inline Usage usage(size_t pid) {
  Usage out;
  if (!pid) return out;
  const std::filesystem::path folder = "/proc/" + std::to_string(pid);
  std::error_code gone;
  for (const auto& thread : std::filesystem::directory_iterator(folder / "task", gone)) {
    double nanoseconds = 0;  // finer than the ticks of stat
    std::ifstream(thread.path() / "schedstat") >> nanoseconds;
    out.cpu_seconds += nanoseconds / 1e9;
  }
  std::ifstream status(folder / "status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with("VmRSS:")) out.rss_mib = std::strtod(line.c_str() + 6, nullptr) / 1024;
    if (line.starts_with("VmHWM:")) out.peak_mib = std::strtod(line.c_str() + 6, nullptr) / 1024;
  }
  return out;
}

}  // namespace ph::bench
