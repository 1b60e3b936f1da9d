// Balancing by a hash of each event: what an event's key is, who owns it, and how a batch is cut by owner. Pure.
//
// A key belongs to one of kPartitions partitions by its hash; a partition's owner is the receiver with the greatest
// weighted rendezvous score among those that are there. So the loss of a receiver moves its own partitions and no
// others, and its return brings back the same ones. Scores come from the address alone: order and number of the
// configured addresses do not matter. Of several connections to one address a partition uses one, found likewise.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/bytes.h"

namespace ph::link {

inline constexpr uint32_t kPartitions = 1024;

struct HashRule {
  enum class By : uint8_t {
    prefix,       // of a line or payload: the bytes before the first `text`
    regex,        // the first group of the first match of `text`, or all of the match
    topic_level,  // of an MQTT message: level `level` of its topic, from 1
  };
  By by = By::prefix;
  std::string text;
  uint32_t level = 0;
};

class KeyFinder {
 public:
  explicit KeyFinder(const HashRule& rule);
  ~KeyFinder();
  /// Partition of a line (without its newline) or a message's payload; nullopt: it has no key. `topic` is empty for
  /// lines.
  std::optional<uint16_t> partition(ByteView bytes, ByteView topic) const;

 private:
  struct Pattern;
  std::optional<ByteView> key(ByteView bytes, ByteView topic) const;
  HashRule rule_;
  std::unique_ptr<Pattern> pattern_;
};

class Owners {
 public:
  struct Place {
    std::string address;
    uint32_t weight = 1;
  };
  /// Connection i is of places[i / connections].
  Owners(std::vector<Place> places, size_t connections);
  /// Sets which connections are there. With none, everything stays with its owner. True if a partition moved.
  bool set_present(const std::vector<bool>& present);
  size_t of(uint16_t partition) const { return owner_[partition]; }
  /// Of what has no key: any, the same for equal `salt`.
  size_t of_salt(uint64_t salt) const;

 private:
  std::vector<Place> places_;
  std::vector<uint64_t> seeds_;
  size_t connections_;
  std::array<size_t, kPartitions> owner_{};
};

/// A part of a batch whose events all have one owner.
struct Run {
  uint64_t first = 0;
  uint64_t last = 0;
  uint64_t events = 0;
  Slice packed;
  size_t owner = 0;
  std::vector<uint16_t> partitions;  // of its keys, ascending, each once
};
/// What has no key stays with what comes before it, or behind it at the front of the batch. A batch of one owner shares
/// the bytes; what does not decode is kept whole, as without a key. Partitions that are `apart` share no run with
/// others.
std::vector<Run> runs_by_owner(const Slice& packed, uint64_t first, uint64_t last, uint64_t events,
                               const KeyFinder& keys, const Owners& owners,
                               const std::function<bool(uint16_t partition)>& apart = {});

}  // namespace ph::link
