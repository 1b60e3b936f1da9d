#include "base/log.h"

#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>

#include <atomic>
#include <chrono>
#include <map>
#include <memory>
#include <mutex>

namespace ph {
namespace {

constexpr int kLogBurst = 20;  // lines of one event name a second

spdlog::level::level_enum to_spdlog(LogLevel level) {
  switch (level) {
    case LogLevel::trace:
      return spdlog::level::trace;
    case LogLevel::debug:
      return spdlog::level::debug;
    case LogLevel::info:
      return spdlog::level::info;
    case LogLevel::warn:
      return spdlog::level::warn;
    case LogLevel::error:
      return spdlog::level::err;
    case LogLevel::off:
      return spdlog::level::off;
  }
  return spdlog::level::info;
}

spdlog::logger& logger() {
  static auto instance = [] {
    auto made = std::make_shared<spdlog::logger>("posthouse", std::make_shared<spdlog::sinks::stderr_sink_mt>());
    made->set_pattern("%Y-%m-%dT%H:%M:%S.%e%z %l %v");
    made->flush_on(spdlog::level::trace);
    return made;
  }();
  return *instance;
}

bool needs_quotes(std::string_view value) {
  if (value.empty()) return true;
  for (unsigned char c : value)
    if (c <= ' ' || c == '"' || c == '=' || c == '\\' || c == 0x7F) return true;
  return false;
}

void append_value(std::string& line, std::string_view value) {
  if (!needs_quotes(value)) {
    line += value;
    return;
  }
  line += '"';
  for (unsigned char c : value) {
    if (c == '"' || c == '\\') {
      line += '\\';
      line += static_cast<char>(c);
    } else if (c < ' ' || c == 0x7F) {
      static constexpr char kDigits[] = "0123456789abcdef";
      line += "\\x";
      line += kDigits[c >> 4];
      line += kDigits[c & 15];
    } else {
      line += static_cast<char>(c);
    }
  }
  line += '"';
}

struct Budget {
  int64_t second = 0;
  int used = 0;
  int suppressed = 0;
};

/// Whether this event may be written now; sets `suppressed` to what was held back before it.
bool admit(std::string_view event, int& suppressed) {
  static std::mutex mutex;
  static std::map<std::string, Budget, std::less<>> budgets;
  auto second =
      std::chrono::duration_cast<std::chrono::seconds>(std::chrono::steady_clock::now().time_since_epoch()).count();
  std::lock_guard lock(mutex);
  auto it = budgets.find(event);
  if (it == budgets.end()) it = budgets.emplace(std::string(event), Budget{}).first;
  Budget& b = it->second;
  if (b.second != second) {
    b.second = second;
    b.used = 0;
  }
  if (b.used >= kLogBurst) {
    ++b.suppressed;
    return false;
  }
  ++b.used;
  suppressed = std::exchange(b.suppressed, 0);
  return true;
}

}  // namespace

void log_configure(LogLevel level, bool timestamps) {
  logger().set_level(to_spdlog(level));
  logger().set_pattern(timestamps ? "%Y-%m-%dT%H:%M:%S.%e%z %l %v" : "%l %v");
}

void log_set_level(LogLevel level) {
  logger().set_level(to_spdlog(level));
}

bool log_enabled(LogLevel level) {
  return logger().should_log(to_spdlog(level));
}

void log_write(LogLevel level, std::string_view event, LogFields fields) {
  if (!log_enabled(level)) return;
  int suppressed = 0;
  if (!admit(event, suppressed)) return;
  std::string line(event);
  for (const LogField& f : fields) {
    line += ' ';
    line += f.key;
    line += '=';
    append_value(line, f.value);
  }
  if (suppressed) line += " suppressed=" + std::to_string(suppressed);
  logger().log(to_spdlog(level), "{}", line);
}

}  // namespace ph
