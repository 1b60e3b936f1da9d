// What the agent keeps in the store, and its exact form. Pure. Two records per file generation and target pair, so that
// a sink of this node can commit its own cursor together with its data while the agent writes the others.
//
//   a/g/ <8 id, big-endian>            generation, version 2
//     u8 version; u8 state; u64 device; u64 inode; i64 birth; u64 boot; varint order; varint size last known to be its
//     own; prefix (fingerprint.h); sized lane; sized category; sized directory; sized name; u8 flags (bit 0: truncated,
//     bit 1: copy). Version 1 ends behind the name.
//   a/c/ <8 id, big-endian> <target>   cursor, version 2
//     u8 version; u64 stream; varint settled; varint far; varint read - settled; u8 flags (bit 0: ended, then varint
//     end - settled); varint window end, varint window length, u64 window hash; varint number of receivers, each sized;
//     varint reserved; varint number of past streams, each: u64 stream, varint until, varint number of receivers, each
//     sized. Version 1 ends behind the receivers.
//   c/a/ <route> / <target>            counters, version 1
//     u8 version; varint delivered, duplicate, maybe_duplicate, dropped, dropped_bytes, dead_lettered
//   a/clean                            present while the agent is stopped cleanly
// Fixed-size integers are little-endian. A reader that meets a newer version fails: agent.newer_version, and the agent
// does not start, because going on from a guessed cursor would lose or double lines.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/ids.h"
#include "base/result.h"
#include "core/agent/fingerprint.h"

namespace ph::agent {

/// Which file, as the kernel names it. birth_ns is 0 where the file system keeps none.
struct Identity {
  uint64_t device = 0;
  uint64_t inode = 0;
  int64_t birth_ns = 0;
  bool operator==(const Identity&) const = default;
};

enum class GenerationState : uint8_t {
  live = 0,      // where its producer put it
  retiring = 1,  // its record is stored and it may be in the hidden directory
  draining = 2,  // unlinked, alive through our descriptor: what still arrives is delivered
  ended = 3,     // no more bytes can be read: truncated, deleted or gone; kept until settled
};

struct GenerationRecord {
  StreamId id;
  GenerationState state = GenerationState::live;
  Identity identity;
  uint64_t boot = 0;
  uint64_t order = 0;
  uint64_t size = 0;
  Prefix prefix;
  std::string lane;
  std::string category;
  std::string directory;  // below the source directory; empty: the source directory itself
  std::string name;
  bool truncated = false;  // ended because its file was truncated in its place: a copy may have its bytes
  bool copy = false;       // the file was made by copying another one's bytes
};

/// A stream that a cursor had before its present one. Nothing of it is sent any more; far acknowledgements of what lies
/// below `until` (and not below the one before it) are still to come.
struct PastStream {
  StreamId stream;
  uint64_t until = 0;
  std::vector<std::string> receivers;
  bool operator==(const PastStream&) const = default;
};

struct CursorRecord {
  StreamId stream;
  uint64_t settled = 0;
  uint64_t far = 0;
  uint64_t read = 0;  // handed out up to here when this was stored
  std::optional<uint64_t> end;
  Window window;  // ends at or below settled
  std::vector<std::string> receivers;
  uint64_t reserved = 0;         // no receiver was ever sent anything behind this
  std::vector<PastStream> past;  // ascending
};

struct CounterRecord {
  uint64_t delivered = 0;
  uint64_t duplicate = 0;
  uint64_t maybe_duplicate = 0;
  uint64_t dropped = 0;
  uint64_t dropped_bytes = 0;
  uint64_t dead_lettered = 0;
};

std::string generation_key(StreamId id);
std::string cursor_key(StreamId id, std::string_view target);
std::string counter_key(std::string_view route, std::string_view target);
inline constexpr std::string_view kGenerationPrefix = "a/g/";
inline constexpr std::string_view kCursorPrefix = "a/c/";
inline constexpr std::string_view kCleanKey = "a/clean";

std::string encode(const GenerationRecord& record);
std::string encode(const CursorRecord& record);
std::string encode(const CounterRecord& record);

/// Errors of all three: agent.malformed, agent.newer_version.
Result<GenerationRecord> decode_generation(ByteView key, ByteView value);
Result<CursorRecord> decode_cursor(ByteView value);
Result<CounterRecord> decode_counters(ByteView value);
/// Splits a cursor's key; nullopt if it is none.
struct CursorName {
  StreamId generation;
  std::string target;
};
std::optional<CursorName> decode_cursor_key(ByteView key);

namespace errors {
inline constexpr ErrorCode malformed{"agent.malformed"};
inline constexpr ErrorCode newer_version{"agent.newer_version"};
}  // namespace errors

}  // namespace ph::agent
