// OutputQueue: what a connection still has to write, in order: shared slices and copied small bytes. Owned by one
// socket while it has something to send, then handed back to its loop's pool, so that an idle connection keeps none.
//
// Shape: entries; a run of consecutive copies is one entry whose bytes lie in one growing buffer.
#pragma once

#include <sys/uio.h>

#include <string>
#include <vector>

#include "base/bytes.h"

namespace ph::io {

class OutputQueue {
 public:
  void push(Slice bytes);
  void push_copy(ByteView bytes);

  size_t bytes() const { return bytes_; }
  bool empty() const { return bytes_ == 0; }

  /// Describes the front of the queue in at most `max` vectors; they are valid until the next push or consume.
  size_t gather(iovec* into, size_t max) const;
  /// Copies up to `size` bytes of the front; returns how many.
  size_t peek(char* into, size_t size) const;
  /// Moves `size` bytes from the front of `from` to the end of this one. Requires size <= from.bytes().
  void take_from(OutputQueue& from, size_t size);
  /// Removes `size` bytes from the front. Requires size <= bytes().
  void consume(size_t size);
  /// Empties it; keeps a little memory for the next user.
  void clear();

 private:
  struct Entry {
    Slice slice;  // empty: the next `copied` bytes of copies_
    size_t copied = 0;
    size_t size() const { return copied ? copied : slice.size(); }
  };
  std::vector<Entry> entries_;
  size_t head_ = 0;       // first entry not yet consumed
  size_t head_used_ = 0;  // bytes of it that are gone
  std::string copies_;
  size_t copies_used_ = 0;  // bytes of copies_ that belong to consumed entries
  size_t bytes_ = 0;
};

}  // namespace ph::io
