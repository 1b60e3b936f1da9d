// Mailbox: how workers talk. During a turn a worker fills one Batch per other worker; at its end each batch is pushed
// in one step, and the receiver is woken once when its mailbox becomes non-empty. No lock: a push is one
// compare-and-swap, taking everything is one exchange. Letters of one sender arrive in the order in which they were
// written.
//
// Bound: weight() is what was pushed and not yet worked off, in bytes. Above the broker's mailbox_bytes_max a sender
// drops QoS 0 (Drop::mailbox_full) and stops reading from clients that publish at QoS 1 and 2 to it.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/session/message.h"

namespace ph::broker {

class Worker;
using WorkerTask = std::move_only_function<void(Worker*)>;

/// A publish of the event plane that is not answered yet. Any thread; whoever holds it keeps the answer back.
class SinkTicket {
 public:
  explicit SinkTicket(std::move_only_function<void()> done) : done_(std::move(done)) {}
  void hold() { holds_.fetch_add(1, std::memory_order_relaxed); }
  /// The last release answers, once. Dropped without, it never does: the message may not have arrived.
  void release() {
    if (holds_.fetch_sub(1, std::memory_order_acq_rel) == 1) done_();
  }

 private:
  std::atomic<uint32_t> holds_{1};
  std::move_only_function<void()> done_;
};

/// An entry of an ended session, of which another session is to have the message.
struct HandedOn {
  uint64_t uid = 0;
  uint64_t sequence = 0;  // 0: there is no such record
};

/// A routed message, or something to do. A small message that nobody keeps lies in the batch's bytes, so that a QoS 0
/// message costs its receiver's worker no allocation; others are shared.
struct Letter {
  WorkerTask task;              // set: the rest is unused
  session::MessagePtr message;  // set: the view's bytes are its own
  size_t offset = 0;            // else: topic, properties and payload lie here, one after the other
  session::MessageView view;    // sizes are right, addresses only where `message` is set
  uint64_t sequence = 0;        // sender's number of the message
  uint64_t retained_version = 0;
  std::shared_ptr<SinkTicket> ticket;  // of a message from the event plane
  session::SharedKey shared;           // for one member of this shared subscription only,
  uint64_t follow = 0;                 // the sender wants to be told of this very one once it is on disk: its number
  uint64_t uid = 0;                    // the one with this session;
  HandedOn handed_on;                  // and no longer for this one
  bool cover = false;                  // the sender waits until it is on disk here
};

struct Batch {
  uint32_t from = 0;
  std::string bytes;
  std::vector<Letter> letters;
  size_t weight = 0;
  Batch* next = nullptr;

  /// The letter's message with addresses that are valid as long as this batch is.
  session::MessageView view(const Letter& letter) const {
    if (letter.message) return letter.message->view();
    session::MessageView v = letter.view;
    const ByteView all(bytes);
    v.topic = all.substr(letter.offset, v.topic.size());
    v.properties = all.substr(letter.offset + v.topic.size(), v.properties.size());
    v.payload = all.substr(letter.offset + v.topic.size() + v.properties.size(), v.payload.size());
    return v;
  }
};

class Mailbox {
 public:
  Mailbox() = default;
  Mailbox(const Mailbox&) = delete;
  Mailbox& operator=(const Mailbox&) = delete;
  ~Mailbox() { take(); }

  /// Any thread. True if the mailbox was empty: the receiver has to be woken.
  bool push(std::unique_ptr<Batch> batch) {
    weight_.fetch_add(batch->weight, std::memory_order_relaxed);
    Batch* b = batch.release();
    Batch* below = head_.load(std::memory_order_relaxed);
    do {
      b->next = below;
    } while (!head_.compare_exchange_weak(below, b, std::memory_order_release, std::memory_order_relaxed));
    return below == nullptr;  // the batch itself may be gone by now
  }

  /// The owner's thread: everything there is, oldest first.
  std::vector<std::unique_ptr<Batch>> take() {
    std::vector<std::unique_ptr<Batch>> out;
    for (Batch* b = head_.exchange(nullptr, std::memory_order_acquire); b != nullptr;) {
      Batch* next = b->next;
      out.emplace_back(b);
      b = next;
    }
    return {std::make_move_iterator(out.rbegin()), std::make_move_iterator(out.rend())};
  }

  void worked_off(size_t weight) { weight_.fetch_sub(weight, std::memory_order_relaxed); }
  size_t weight() const { return weight_.load(std::memory_order_relaxed); }

 private:
  std::atomic<Batch*> head_{nullptr};
  std::atomic<size_t> weight_{0};
};

}  // namespace ph::broker
