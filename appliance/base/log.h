// Structured logs: an event name in snake_case and past tense, then fields, one line each in logfmt.
//   log_warn("target_became_unreachable", {{"upstream", name}, {"address", address}});
// error: someone must act. warn: we recovered. info: state changed, rare. debug: per connection. trace: per packet.
// Payloads, passwords and tokens are never logged. Each event name is rate limited (kLogBurst a second); what was
// suppressed is counted and said.
#pragma once

#include <concepts>
#include <initializer_list>
#include <string>
#include <string_view>

namespace ph {

enum class LogLevel { trace, debug, info, warn, error, off };

struct LogField {
  std::string_view key;
  std::string value;
  LogField(std::string_view k, std::string_view v) : key(k), value(v) {}
  LogField(std::string_view k, const char* v) : key(k), value(v) {}
  LogField(std::string_view k, std::string v) : key(k), value(std::move(v)) {}
  LogField(std::string_view k, bool v) : key(k), value(v ? "true" : "false") {}
  template <class T>
    requires(std::integral<T> && !std::same_as<T, bool>)
  LogField(std::string_view k, T v) : key(k), value(std::to_string(v)) {}
};
using LogFields = std::initializer_list<LogField>;

/// Sets the level and whether lines carry a time stamp (off under journald). Call before threads start.
void log_configure(LogLevel level, bool timestamps);
/// Changes the level alone. Any thread, at any time.
void log_set_level(LogLevel level);
bool log_enabled(LogLevel level);
void log_write(LogLevel level, std::string_view event, LogFields fields);

inline void log_error(std::string_view event, LogFields f = {}) {
  log_write(LogLevel::error, event, f);
}
inline void log_warn(std::string_view event, LogFields f = {}) {
  log_write(LogLevel::warn, event, f);
}
inline void log_info(std::string_view event, LogFields f = {}) {
  log_write(LogLevel::info, event, f);
}
inline void log_debug(std::string_view event, LogFields f = {}) {
  if (log_enabled(LogLevel::debug)) log_write(LogLevel::debug, event, f);
}

}  // namespace ph
