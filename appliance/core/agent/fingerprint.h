// What tells one generation of a source file from another: hashes of its first bytes and of the bytes before a cursor,
// and the decision what a file found again under a known device and inode is. Pure (amendments 3, 10, 11; review 3).
//
// The hash is not cryptographic: it guards against mistakes (truncation, inode reuse, power cuts), not against a
// producer, who may write what it likes into its own category anyway. It is stored, so it must never change.
#pragma once

#include <array>
#include <cstdint>
#include <string>

#include "base/bytes.h"
#include "base/coding.h"

namespace ph::agent {

inline constexpr size_t kPrefixMax = 4096;  // first bytes that are hashed
inline constexpr size_t kWindowMax = 4096;  // bytes before a cursor that are hashed

uint64_t content_hash(ByteView bytes);

enum class Match : uint8_t {
  same,        // the file holds all bytes that the fingerprint knows, unchanged
  shorter,     // it holds fewer; those that could be compared are unchanged
  unknowable,  // it holds fewer, too few to compare
  different,
};

/// Fingerprint of a file's first bytes. It knows min(size, 4096) of them and grows with the file. Besides the hash of
/// all it knows it keeps hashes of the first 64, 128, .. 2048 bytes, so that a file that came back shorter after a
/// power cut can still be recognised.
class Prefix {
 public:
  Prefix() = default;
  /// Of a file's first bytes; more than 4096 are ignored.
  static Prefix of(ByteView first_bytes);

  /// `first_bytes`: the file's first min(its size, 4096) bytes.
  Match match(ByteView first_bytes) const;
  size_t length() const { return length_; }
  bool operator==(const Prefix&) const = default;

  /// varint length; if not 0: u64 hash of all, then a u64 for each of 64, 128, .. that is below length.
  void encode(std::string& out) const;
  static Prefix decode(Reader& in);

 private:
  static constexpr size_t kStepFirst = 64;
  static constexpr size_t kSteps = 6;  // 64 .. 2048
  size_t steps() const;

  uint16_t length_ = 0;
  uint64_t whole_ = 0;
  std::array<uint64_t, kSteps> step_{};
};

/// Fingerprint of the up to 4096 bytes that end at a position. Length 0: nothing known, matches anything.
struct Window {
  uint64_t end = 0;
  uint32_t length = 0;
  uint64_t hash = 0;
  static Window of(uint64_t end, ByteView bytes_before) {
    return {end, static_cast<uint32_t>(bytes_before.size()), content_hash(bytes_before)};
  }
  bool operator==(const Window&) const = default;
};

/// What is known of a generation when its file is found again after a restart.
struct Known {
  uint64_t position = 0;   // greatest that a target was ever handed, as far as stored
  bool in_flight = false;  // a receiver may hold something above the stored cursors
  bool same_boot = true;   // the host has not been started anew since this was stored
};
struct Found {
  uint64_t size = 0;
  Match prefix = Match::same;
  bool windows_match = true;  // of every cursor whose window lies within the file
};
enum class Verdict : uint8_t {
  same,      // go on at the cursors
  replaced,  // other content: a new generation from 0
  /// The host went down and what had not been written back is gone or may come back otherwise: go on at the cursors (at
  /// the file's end where they lie behind it) under new stream ids. What was in flight may be delivered twice; under
  /// the old ids other lines at the same positions would be taken for duplicates.
  power_cut,
};
Verdict judge(const Known& known, const Found& found);

}  // namespace ph::agent
