// Dead letters on disk: <data_dir>/dead-letters/<route>.log, appended and synced before a cursor passes what they hold.
// Written by the disk thread (port/dead_letters.h), read by the CLI, also while the daemon runs.
//
// A file is a run of frames, integers little-endian:
//   0  4  magic "DLT1"
//   4  4  CRC-32C of bytes 8 .. 12 + size
//   8  4  size of the body
//  12     body: a letter as port::encode() gives it; its first byte is its version. A newer one is listed as such,
//  skipped
// What a crash or a bad disk left between whole frames is skipped: the reader looks for the next magic with a good CRC.
//
// A file that reached kFileBytes, or that could not be written or synced, is renamed to <route>.log.<n>, n growing. The
// latest kFilesKept of those stay; an older one is deleted and alarmed.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "port/dead_letters.h"
#include "port/files.h"

namespace ph::dead_letter {

inline constexpr uint64_t kFileBytes = 16ull << 20;
inline constexpr size_t kFilesKept = 64;
inline constexpr size_t kRecentMax = 1024;  // letters by which a repeated one is known, per route

class DeadLetterFiles final : public port::DeadLetters {
 public:
  /// `directory`: <data_dir>/dead-letters, made with the first letter. Disk thread only, this and all members.
  DeadLetterFiles(std::string directory, port::Files& files, uint64_t file_bytes = kFileBytes);
  ~DeadLetterFiles() override;

  /// Errors: file.*, dead_letter.bad_route for a route whose name cannot be a file's.
  Result<> append(const std::vector<port::DeadLetter>& letters) override;
  /// Takes the letters with these ids (letter_id) out of the route's files, durably: each file that has one is replaced
  /// by rename. What belongs to no whole frame stays. Ids that are not there are fine. Errors: file.*
  Result<> forget(const std::string& route, const std::set<std::string>& ids);

 private:
  struct Route;
  Result<Route*> open(const std::string& route);
  Result<> write(const std::string& name, Route& route, ByteView frames);
  Result<> forget_in(const std::string& name, const std::set<std::string>& ids);
  Result<> rotate(const std::string& name, Route& route);
  std::string path(const std::string& route) const { return directory_ + "/" + route + ".log"; }

  std::string directory_;
  port::Files& files_;
  uint64_t file_bytes_;
  std::map<std::string, Route> routes_;
};

/// By what a letter is called: 16 hex digits, of its route, target, stream and positions.
std::string letter_id(const port::DeadLetter& letter);

/// A letter as it lies on disk.
struct Found {
  std::string file;
  uint64_t offset = 0;
  port::DeadLetter letter;
  bool newer_version = false;  // `letter` is empty
};

/// Visits the letters of one route, oldest first, until `visit` returns false. Gives the number of bytes that belong to
/// no whole frame. Errors: file.*. A route without letters has none.
Result<uint64_t> for_each_letter(port::Files& files, const std::string& directory, const std::string& route,
                                 const std::function<bool(const Found&)>& visit);

/// Routes that have dead letters, sorted.
Result<std::vector<std::string>> routes_with_letters(port::Files& files, const std::string& directory);

/// Walks the frames in `bytes`; whole ones are visited with their offset. Gives the bytes that belong to none. Pure.
uint64_t scan_frames(const Slice& bytes, const std::function<bool(uint64_t offset, const Slice& body)>& visit);

namespace errors {
inline constexpr ErrorCode bad_route{"dead_letter.bad_route"};
}

}  // namespace ph::dead_letter
