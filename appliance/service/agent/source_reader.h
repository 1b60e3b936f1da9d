// SourceReader: bytes of a generation into a batch of one block, with proof that they are that generation's. Keeps the
// few open descriptors: at most AgentOptions::descriptors_max, the least recently read is closed; never two of one
// file.
//
// One read is: fstat, one pread of {up to 4096 bytes before the cursor, the payload}, fstat, pread of the file's first
// 4096 bytes. The bytes before the cursor come with the payload in the same pread and must hash to what was there when
// they were handed out; the size must not have shrunk and the first bytes must be unchanged after the read. A
// generation that is gone never comes back, so what holds after the read held before it (amendment 11).
#pragma once

#include <list>
#include <optional>
#include <variant>

#include "core/agent/line_packer.h"
#include "port/event_source.h"
#include "service/agent/generation_table.h"

namespace ph::agent {

class SourceReader {
 public:
  explicit SourceReader(Parts& parts) : parts_(parts) {}

  struct Read {
    port::Batch batch;
    Window window;  // ends at batch.last
    bool in_oversize = false;
    std::optional<Slice> dead_letter;  // encoded block of an over-long line; the batch is then a gap
  };
  enum class Nothing : uint8_t {
    dry,       // no whole line behind the cursor
    replaced,  // the file holds other content; `stat` of it is in the outcome
    lost,      // not found under its name, or unreadable: look again
  };
  struct Outcome {
    std::optional<Read> read;
    Nothing nothing = Nothing::dry;
    std::optional<Duration> again;  // dry: to be read again by then, although it may not have grown
    port::FileStat stat;
  };
  /// The next block of the cursor: about `bytes_max` payload bytes, at least one line. Updates the generation's size
  /// and prefix, nothing of the cursor.
  Outcome read(Cursor& c, size_t bytes_max);

  /// What the file of a stored generation is now (after a restart).
  Result<Verdict> inspect(Generation& g, const port::FileStat& stat, bool in_flight);
  /// How many events the bytes [from, until) can have made at most; lines that reach over the end do not count.
  Result<uint64_t> lines(Generation& g, uint64_t from, uint64_t until);
  /// No read() takes a cursor further than this.
  uint64_t step_max(const Cursor& c) const;
  /// Whether the content is still the generation's, by its fingerprints (same size, other modification time).
  Result<bool> unchanged(Generation& g);
  /// Takes the fingerprints of a file that is not read from its beginning.
  Result<> learn(Generation& g);

  /// Our descriptor of the file, opened if need be. Errors: file.*, or agent.other_file if the name leads elsewhere.
  Result<port::File*> file(Generation& g);
  void close(Generation& g);
  /// Keeps the descriptor open whatever else is read.
  void pin(Generation& g);
  size_t descriptors() const { return open_.size() + pinned_; }
  size_t pinned() const { return pinned_; }
  /// Open generations found at a place; for files that lost their name.
  template <class Visit>
  void each_open(Visit visit) {
    for (auto it = open_.begin(); it != open_.end();) visit(**it++);
  }

 private:
  struct Taken;
  Result<std::optional<Taken>> take(Cursor& c, port::File& file, size_t want, Outcome& outcome);
  bool verify_prefix(Generation& g, port::File& file, uint64_t size);
  Result<bool> stands_in_oversize(Cursor& c, port::File& file);
  Read block(Cursor& c, BlockBuffer buffer, size_t source_bytes, size_t payload_bytes, uint64_t events,
             event::Block flags);
  Read gap(Cursor& c, uint64_t last, Window window, bool in_oversize);
  static constexpr Duration kLockedRetry = std::chrono::milliseconds(50);
  static constexpr Duration kLockPatience = std::chrono::seconds(5);  // then a locked file is read all the same

  Outcome read_unlocked(Cursor& c, port::File& f, size_t bytes_max);
  Outcome lost(const Generation& g, const Error& error);
  bool lock(Generation& g, port::File& file, Outcome& outcome);
  bool tail_is_whole(Cursor& c, Outcome& outcome);
  Outcome read_joined(Cursor& c, Taken taken, size_t size);
  Outcome read_oversize(Cursor& c, Taken taken);
  Outcome skip_rest(Cursor& c, port::File& file);

  Parts& parts_;
  std::list<Generation*> open_;  // most recently used first
  size_t pinned_ = 0;
};

namespace errors {
inline constexpr ErrorCode other_file{"agent.other_file"};
}  // namespace errors

}  // namespace ph::agent
