// What a configuration of LSD means in ours, and what its offsets file says. Pure: text to text and values. Called by
// `posthouse migrate lsd`.
//
// The configuration is JSON with comments and trailing commas; daemon_config, server_config and client_config. Both
// generations are read: that of 2016 (prefix_sharding, cut_prefix, prefix_delimiter, chunk_output) and that of 2017 and
// later. What has no equivalent, or no equal one, becomes a comment where the reader will look for it; so does a key
// that LSD would have ignored.
//
// Offsets file: a JSON array of {"Ino": n, "Off": n, "LastFileName": "/absolute/path"}; the last may be missing. An
// entry belongs to the file of that inode while its name begins with LastFileName (x.log, x.log.old), as in LSD.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/result.h"

namespace ph::migrate {

/// LSD's two halves are one process; a node of ours that did both would send on what it receives.
enum class Part : uint8_t { both, client, server };

struct LsdOptions {
  Part part = Part::both;
  bool gzip_files = false;    // whether receiver.category.compress is built: else it is a comment
  bool hash_balance = false;  // whether upstream.balance = hash is
};

struct LsdConfig {
  std::string toml;
  std::string source_dir;  // of the client; empty: there is none
  std::string offsets_db;
  std::string pid_file;
  size_t notes = 0;  // comments that say what differs
};

/// Errors: migrate.malformed (not JSON, a required key missing), migrate.two_halves (client and server with directories
/// of their own, and no part was named).
Result<LsdConfig> convert_lsd(ByteView text, const LsdOptions& options);

struct LsdOffset {
  uint64_t inode = 0;
  uint64_t offset = 0;
  std::string last_name;  // absolute path; empty: any
  /// Whether the entry may be that of the inode's file of this name.
  bool fits(std::string_view path) const { return path.starts_with(last_name); }
};
/// Errors: migrate.malformed.
Result<std::vector<LsdOffset>> parse_lsd_offsets(ByteView text);

namespace errors {
inline constexpr ErrorCode malformed{"migrate.malformed"};
inline constexpr ErrorCode two_halves{"migrate.two_halves"};
}  // namespace errors

}  // namespace ph::migrate
