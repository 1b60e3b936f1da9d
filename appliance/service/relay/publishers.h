// Publishers: the durable memory of a strict sender (amendment 17): which receiver alone may publish a range, from
// before it is told to until the source's own cursor has no more need of it. One per upstream; on the event plane's
// loop.
//
// In the store:
//   o/<upstream>/s                         this upstream was strict when the node last ran: u8 version 1
//   o/<upstream>/p<8 stream>               everything below is published: u8 version 1, varint position
//   o/<upstream>/r<8 stream><8 first>      u8 version 1, varint length, u64 attempt, sized address of the receiver,
//                                          then maybe u8 1: an operator gave it up
// Records below `p` go in the batch that moves it, so a source whose cursor lags behind finds no hole between them.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "base/ids.h"
#include "base/result.h"
#include "core/link/sender.h"
#include "port/keyed_store.h"
#include "store/commit/committer.h"

namespace ph::relay {

class Publishers {
 public:
  Publishers(std::string upstream, port::KeyedStore& store, commit::Committer& committer);

  /// Reads what earlier runs recorded, and notes that this one is strict. Errors: of the store, link.malformed (names
  /// the key).
  Result<> load();
  /// For an upstream that is not strict: forgets that it ever was.
  static Result<> forget_all(const std::string& upstream, port::KeyedStore& store);

  bool strict_before() const { return strict_before_; }
  std::vector<link::SenderOwned> owned(StreamId stream) const;
  uint64_t published(StreamId stream) const;

  /// Records an owner in place of whatever was recorded of these positions; `durable` runs once that is on disk.
  void own(StreamId stream, const link::SenderOwned& owner, port::Task durable);
  /// Everything below `settled` is published. Written with the next owner.
  void passed(StreamId stream, uint64_t settled);
  /// Records that nobody waits for this receiver any more; `durable` runs once that is on disk.
  void give_up(const std::string& receiver, port::Task durable);
  /// The stream is closed, or goes on under another id.
  void forget(StreamId stream);

 private:
  struct Stream {
    uint64_t published = 0;
    std::map<uint64_t, link::SenderOwned> owned;  // by first
    bool moved = false;                           // `published`, since it was last written
  };
  std::string key(char kind, StreamId stream) const;
  std::string owner_key(StreamId stream, uint64_t first) const;
  static std::string encode_owner(const link::SenderOwned& owner);
  void put_passed(StreamId id, Stream& stream, port::WriteBatch& entries);

  std::string prefix_;
  port::KeyedStore& store_;
  commit::Committer& committer_;
  std::map<StreamId, Stream> streams_;
  bool strict_before_ = false;
};

}  // namespace ph::relay
