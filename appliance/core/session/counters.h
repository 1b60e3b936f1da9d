// What a worker counts. One thread writes, any thread reads: plain loads and stores of an atomic, no locked
// instruction. Every message that is not delivered is in one Drop, so that nothing goes missing silently.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <string_view>

namespace ph::session {

class Counter {
 public:
  void add(uint64_t n = 1) { value_.store(value_.load(std::memory_order_relaxed) + n, std::memory_order_relaxed); }
  void subtract(uint64_t n = 1) { add(0 - n); }
  uint64_t get() const { return value_.load(std::memory_order_relaxed); }

 private:
  std::atomic<uint64_t> value_{0};
};

enum class Drop : uint8_t {
  queue_full,     // mqueue over its messages or bytes: QoS 0 first, then the oldest
  expired,        // message expiry passed before it was sent
  slow_consumer,  // QoS 0 while the connection's output was over its budget
  too_large,      // larger than the client's maximum packet size
  session_ended,  // was queued or in flight when its session ended
  mailbox_full,   // QoS 0 for a worker that does not keep up
  retained_full,  // delivered, but not kept as retained: over the bound
  tap_failed,     // QoS 0 that the event plane refused
  overload,       // QoS 0 while there was too much to do
  count_
};
inline constexpr std::array<std::string_view, static_cast<size_t>(Drop::count_)> kDropNames = {
    "queue_full",   "expired",       "slow_consumer", "too_large", "session_ended",
    "mailbox_full", "retained_full", "tap_failed",    "overload"};

/// Bounds of what one client may do, each with how often it was reached. What was asked beyond is refused.
enum class Limit : uint8_t {
  client_id,        // CONNECT with a longer one
  sessions,         // CONNECT that would make one more
  subscriptions,    // SUBSCRIBE of a session that has as many as it may
  topic_levels,     // topic or filter with more
  topic_alias,      // PUBLISH with a higher one
  receive_maximum,  // PUBLISH while as many are not acknowledged, or await PUBREL
  delayed,          // PUBLISH to $delayed/ while as many wait
  journal,          // clients not read from for a while, since the disk has not taken what they sent
  wills,            // CONNECT with a will that does not fit beside those of all others
  count_
};
inline constexpr std::array<std::string_view, static_cast<size_t>(Limit::count_)> kLimitNames = {
    "client_id",       "sessions", "subscriptions", "topic_levels", "topic_alias",
    "receive_maximum", "delayed",  "journal",       "wills"};

struct Counters {
  Counter connections;  // now
  Counter clients;      // now: connections with a session
  Counter packets_in;
  Counter packets_out;
  Counter connections_in;  // accepted sockets, ever
  Counter sessions;        // now
  Counter subscriptions;   // now
  Counter retained;        // now, on this worker's copy
  Counter messages_in;     // PUBLISH received
  Counter messages_out;    // PUBLISH sent, repeats included
  Counter bytes_in;
  Counter bytes_out;
  Counter malformed;  // connections closed for malformed packets and protocol errors
  Counter refused;    // CONNECTs refused
  Counter takeovers;  // connections replaced by a newer one of the same client
  Counter keep_alive_timeouts;
  Counter slow_consumers;  // connections closed for not reading
  Counter moves;           // sessions that came from another worker
  Counter logins_failed;   // CONNECTs with credentials that are not right, or that needed some
  Counter connects_shed;   // CONNECTs refused since there was too much to do
  Counter banned;          // CONNECTs and connections of banned clients
  Counter publish_denied;  // PUBLISHes and wills that were not allowed
  Counter subscribe_denied;
  Counter http_unreachable;       // questions about a client that nobody answered
  Counter abandoned;              // logins, and questions about access, whose client went before the answer
  Counter logins_expired;         // connections whose credentials were over
  Counter flapping;               // clients found to connect and disconnect all the time
  Counter connections_over_rate;  // closed at once: too many a second
  Counter throttled;              // times that reading from a client waited for its rate
  Counter overloads;              // times that a worker began to shed
  Counter delayed;                // now: messages for later
  Counter will_bytes;             // now: of wills that wait
  std::array<Counter, static_cast<size_t>(Drop::count_)> drops;
  std::array<Counter, static_cast<size_t>(Limit::count_)> limits;

  void limit(Limit which) { limits[static_cast<size_t>(which)].add(); }
  void drop(Drop reason, uint64_t n = 1) { drops[static_cast<size_t>(reason)].add(n); }
  uint64_t dropped(Drop reason) const { return drops[static_cast<size_t>(reason)].get(); }
};

}  // namespace ph::session
