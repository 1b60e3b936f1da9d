// ReceiverStreams: the receiving half's memory of what it has, as a pure core: per stream what is settled, which ranges
// above it are accepted, which are durable at the end of their way, which were refused. The driver (service/receiver)
// commits its state together with the data, in one batch.
//
// Life of a range: admitted (in the group being written) -> accepted (commit succeeded) -> forgotten below settled.
// A duplicate of an accepted or settled range is acknowledged at once; a duplicate of an admitted one is acknowledged
// when that group commits. `far` is kept until the stream is closed: it collapses to few ranges by itself.
//
// Stored per stream under r/ <16 sender> <8 hash of target> <8 stream, big-endian>, value version 1:
//   u8 version; varint settled; varint highest; RangeSet accepted; RangeSet far;
//   varint number of rejects, each varint first, varint length, sized reason; varint last touched (Unix seconds)
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/time.h"
#include "codec/link/frames.h"
#include "core/link/range_set.h"

namespace ph::link {

struct StreamKey {
  NodeId sender;
  uint64_t target = 0;  // hash of Hello::target
  StreamId stream;
  auto operator<=>(const StreamKey&) const = default;
};
uint64_t target_hash(std::string_view target);
std::string store_key(const StreamKey& key);

class ReceiverStreams {
 public:
  static constexpr size_t kStreamsMax = 100'000;  // of one (sender, upstream) that are open at a time

  static std::unique_ptr<ReceiverStreams> make();
  virtual ~ReceiverStreams() = default;

  /// Loads one stored stream. Errors: link.malformed, link.newer_format.
  virtual Result<> load(ByteView key, ByteView value) = 0;

  /// What of [first, last) is new: neither settled, accepted nor admitted. Marks it admitted. `settled` as told in
  /// EVENTS takes effect with the next commit. Too many holes (kRangesMax), or one more stream of a sender than
  /// kStreamsMax: nullopt, the caller drops the frame and the connection.
  virtual std::optional<std::vector<Range>> admit(const StreamKey& key, uint64_t settled, uint64_t first,
                                                  uint64_t last) = 0;
  /// Notes a permanent reject of an admitted range; it becomes accepted with the commit and is re-reported until
  /// settled.
  virtual void reject(const StreamKey& key, uint64_t first, uint64_t last, std::string reason) = 0;
  /// Gives up an admitted range: the commit failed. What was said of it by reject() or far() is taken back.
  virtual void abandon(const StreamKey& key, const std::vector<Range>& ranges) = 0;

  /// `ranges` count as accepted in value() from now on: it goes into the batch that commits their data.
  virtual void stage(const StreamKey& key, const std::vector<Range>& ranges) = 0;
  std::string value_with(const StreamKey& key, const std::vector<Range>& ranges, WallTime now) {
    stage(key, ranges);
    return value(key, now);
  }
  /// That batch is durable.
  virtual void commit(const StreamKey& key, const std::vector<Range>& ranges) = 0;

  /// [first, last) is durable at the end of its way, or will be with the commit that it is admitted for. Returns
  /// whether that was new. Also for what the sender tells in Events::far: [0, far).
  virtual bool far(const StreamKey& key, uint64_t first, uint64_t last) = 0;
  /// The store value of a stream.
  virtual std::string value(const StreamKey& key, WallTime now) = 0;

  /// Parts of [first, last) that are settled or accepted (not merely admitted), ascending.
  virtual std::vector<Range> held(const StreamKey& key, uint64_t first, uint64_t last) const = 0;
  /// Parts of [first, last) that are durable at the end of their way, ascending.
  virtual std::vector<Range> far_held(const StreamKey& key, uint64_t first, uint64_t last) const = 0;

  /// Whether ranges of the stream are admitted and neither committed nor abandoned yet. RESUMED and HOLD for it wait
  /// for that: both promise the sender that what is not acknowledged is not here.
  virtual bool writing(const StreamKey& key) const = 0;
  virtual Resumed::Stream resume(const StreamKey& key, uint64_t settled) = 0;
  /// Forgets a stream; true if it was known (the caller removes its key).
  virtual bool close(const StreamKey& key) = 0;
  /// Streams untouched since `before`: to be closed by the stream_ttl.
  virtual std::vector<StreamKey> idle_since(WallTime before) const = 0;
  virtual bool known(const StreamKey& key) const = 0;
  virtual size_t size() const = 0;
};

}  // namespace ph::link
