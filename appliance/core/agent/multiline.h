// Events of several lines: a line that matches a pattern begins one, and those behind it belong to it, as a stack trace
// does. Pure. The pattern (RE2's syntax, over bytes) is looked for at the beginning of a line, in its first kLookMax
// bytes, in a time that is linear in them whatever the pattern is.
//
// An event is whole when the next one begins, when a bound is reached, or when the caller says that nothing follows.
// It leaves as one line: newlines within it as "\n", backslashes as "\\", as writers of LSD's files do; so a consumer
// can tell. A run of events of one line each without a backslash leaves as the file has it.
#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include "base/bytes.h"
#include "base/result.h"
#include "base/time.h"

namespace ph::agent {

struct MultilineOptions {
  std::string start;
  size_t lines_max = 1000;
  size_t bytes_max = 64 * 1024;  // at most limits::kBlockBytesMax
  Duration timeout = std::chrono::seconds(1);
};

class Multiline {
 public:
  static constexpr size_t kLookMax = 512;

  ~Multiline();
  /// Errors: agent.bad_pattern.
  static Result<std::shared_ptr<const Multiline>> make(MultilineOptions options);

  struct Cut {
    size_t plain = 0;   // bytes of events that leave as they are; with them nothing else
    size_t joined = 0;  // else bytes of the first event, which has to be joined; 0: it is not whole
  };
  /// `lines`: whole lines, the first one begins an event. `last`: no further line belongs to it.
  Cut cut(ByteView lines, bool last) const;
  const MultilineOptions& options() const { return options_; }

 private:
  struct Pattern;
  Multiline(MultilineOptions options, std::unique_ptr<Pattern> start);
  bool begins(ByteView line) const;
  MultilineOptions options_;
  std::unique_ptr<Pattern> start_;
};

/// One line of whole lines.
std::string joined(ByteView lines);

}  // namespace ph::agent
