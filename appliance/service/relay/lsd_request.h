// LsdRequest: a request of LSD's protocol made from batches of sources, and whether an answer is the one it asks for.
// Used by lsd_upstream; pure.
//
// Our tokens: inode = the stream's id, offset = the position behind the event's last line. Both outlive a restart, so a
// receiver that keeps what it saw can tell a repetition; real ones do not look.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "codec/lsd/frames.h"
#include "port/event_source.h"

namespace ph::relay {

struct LsdRequestOptions {
  bool gzip = false;  // of events with at least kGzipMin bytes of lines
  bool json = false;  // MQTT messages become JSON objects, else their payload
};

/// Part of a batch that can never leave in this protocol.
struct LsdUnsendable {
  uint64_t first = 0;
  uint64_t last = 0;
  uint64_t events = 0;
  Slice block;
  std::string reason;
};

class LsdRequest {
 public:
  static constexpr size_t kGzipMin = 1024;
  static constexpr size_t kGrowthMax = 8;          // a control character in JSON takes six bytes, an empty line three
  static constexpr size_t kRunBytes = 256 * 1024;  // small blocks of a category go together up to here

  LsdRequest();
  /// Adds a batch's lines, in order: one event a block, or one for several small blocks of a category.
  void add(const port::Batch& batch, const LsdRequestOptions& options, std::vector<LsdUnsendable>& unsendable);
  /// Whether a batch of so many bytes is sure to fit, whatever its lines become. An empty request takes any.
  bool takes(size_t batch_bytes) const { return empty() || bytes() + kGrowthMax * batch_bytes <= lsd::kLengthMax; }
  /// Nothing but gaps, say: there is nothing to send.
  bool empty() const { return tokens_.empty(); }
  size_t bytes() const { return frame_.size(); }
  size_t events() const { return tokens_.size(); }
  /// The frame; once, when all is added.
  Slice take_frame();
  /// Whether these are exactly the request's tokens, each as often.
  bool answered_by(std::vector<lsd::Token> answer) const;

 private:
  struct Run;
  void put(Run& run, const LsdRequestOptions& options);
  void put(ByteView category, lsd::Token token, ByteView lines, const LsdRequestOptions& options);

  std::string frame_;
  std::vector<lsd::Token> tokens_;
};

}  // namespace ph::relay
