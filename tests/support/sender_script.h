// A link Sender under a test's hand: inputs in a line each, effects out as text. Streams have lines of ten bytes, so
// that position 70 is the end of the seventh line.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/coding.h"
#include "base/random.h"
#include "codec/event/block.h"
#include "core/link/sender.h"

namespace ph::test {

class SenderScript {
 public:
  static constexpr uint64_t kLine = 10;

  explicit SenderScript(link::SenderOptions options, uint64_t seed = 1) : random_(seed) {
    sender_ = link::Sender::make(std::move(options), random_);
  }
  static link::SenderOptions receivers(size_t count) {
    link::SenderOptions o;
    for (size_t r = 0; r < count; ++r) o.receivers.push_back({"r" + std::to_string(r), 1});
    return o;
  }
  link::Sender& sender() { return *sender_; }
  Instant now() const { return now_; }

  /// HELLO, RESUME answered with nothing held, credit.
  void ready(size_t r, uint64_t credit = 1 << 30) {
    connected(r);
    answer_nothing(r);
    sender_->received(r, link::Credit{credit}, now_);
  }
  void connected(size_t r) {
    take();
    link::Hello hello;
    hello.node.raw[0] = static_cast<unsigned char>(r + 1);
    hello.features = link::features::strict;
    sender_->connected(r, hello, now_);
  }
  /// RESUMED for the RESUMEs that were sent to `r` last.
  void answer_nothing(size_t r) {
    for (const link::Resume& q : resumes(r)) {
      link::Resumed a;
      for (const auto& s : q.streams) a.streams.push_back({s.stream, 0, 0, {}, {}, {}});
      sender_->received(r, a, now_);
    }
  }
  std::vector<link::Resume> resumes(size_t r) {
    take();
    return std::exchange(resumes_[r], {});
  }
  void received(size_t r, const link::Frame& f) { sender_->received(r, f, now_); }
  void ack(size_t r, uint64_t stream, uint64_t first, uint64_t last) {
    received(r, link::Ack{StreamId{stream}, {{first, last}}, {}, 0, {}});
  }
  /// Strict: `r` staged what it was sent last of [first, last).
  void stage(size_t r, uint64_t stream, uint64_t first, uint64_t last) {
    take();
    received(r, link::Ack{StreamId{stream}, {}, {}, 0, {}, {attempts.at({first, last})}});
  }
  void lose(size_t r) { sender_->disconnected(r, "lost", now_); }
  /// Lets time pass, with every tick that falls due.
  void pass(Duration d) {
    Instant until = now_ + d;
    while (sender_->deadline() <= until) {
      now_ = std::max(now_, sender_->deadline());
      sender_->tick(now_);
    }
    now_ = until;
  }

  /// Whole lines [first, last), in blocks of at most `per_block` lines.
  static Slice lines(uint64_t stream, uint64_t first, uint64_t last, uint64_t per_block = 100) {
    std::string packed;
    while (first < last) {
      uint64_t end = std::min(last, first + per_block * kLine);
      event::Block b;
      b.category = "events";
      b.id = {NodeId{}, StreamId{stream}, first, end};
      std::string payload;
      for (; first < end; first += kLine) {
        std::string n = std::to_string(first);
        payload += std::string(kLine - 1 - n.size(), '0') + n + "\n";
        ++b.events;
      }
      b.payload = Slice(std::move(payload));
      put_varint(packed, end - b.id.first);
      put_sized(packed, event::encode(b));
    }
    return Slice(std::move(packed));
  }
  void offer(uint64_t stream, uint64_t first, uint64_t last, uint64_t per_block = 100, size_t source = 0) {
    sender_->offer(
        source, {StreamId{stream}, first, last, (last - first) / kLine, lines(stream, first, last, per_block)}, now_);
  }

  /// The effects since the last call, a line each; WillUse and ReroutedUnasked are answered at
  /// once.
  std::string take() {
    std::string out;
    for (bool more = true; more;) {
      auto effects = sender_->take_effects();
      more = !effects.empty();
      for (const auto& e : effects) {
        out += text(e) + "\n";
        if (const auto* use = std::get_if<link::effect::WillUse>(&e); use && durable_at_once)
          sender_->durable(use->source, use->stream, use->receiver, now_);
        if (const auto* copies = std::get_if<link::effect::ReroutedUnasked>(&e); copies && durable_at_once)
          sender_->counted(copies->source, copies->stream, now_);
        if (const auto* parked = std::get_if<link::effect::Parked>(&e); parked && takes_back)
          sender_->taken_back(parked->stream, parked->from, now_);
        if (const auto* own = std::get_if<link::effect::Own>(&e); own && durable_at_once)
          sender_->owned(own->source, own->stream, own->first, own->attempt, now_);
      }
    }
    log_ += out;
    return out;
  }
  /// Of take(), only the EVENTS: "r0 [0,30) r1 [30,60)".
  std::string sent() {
    sent_.clear();
    take();
    return sent_;
  }
  bool durable_at_once = true;
  bool takes_back = false;                                     // as a source of files does
  std::map<std::pair<uint64_t, uint64_t>, uint64_t> attempts;  // strict: the latest of each range that was sent

 private:
  std::string text(const link::SenderEffect& effect) {
    namespace fx = link::effect;
    auto n = [](uint64_t v) { return std::to_string(v); };
    auto range = [&](uint64_t a, uint64_t b) { return "[" + n(a) + "," + n(b) + ")"; };
    if (const auto* e = std::get_if<fx::Connect>(&effect)) return "connect r" + n(e->receiver);
    if (const auto* e = std::get_if<fx::Disconnect>(&effect)) return "disconnect r" + n(e->receiver) + ": " + e->reason;
    if (const auto* e = std::get_if<fx::WillUse>(&effect))
      return "will use r" + n(e->receiver) + " for stream " + n(e->stream.value);
    if (const auto* e = std::get_if<fx::Advanced>(&effect))
      return "stream " + n(e->stream.value) + " settled " + n(e->settled) + ", events " + n(e->events) +
             ", duplicates " + n(e->duplicates);
    if (const auto* e = std::get_if<fx::FarAdvanced>(&effect))
      return "stream " + n(e->stream.value) + " far " + n(e->far);
    if (const auto* e = std::get_if<fx::Rejected>(&effect))
      return "stream " + n(e->stream.value) + " rejected " + range(e->first, e->last) + ": " + e->reason;
    if (const auto* e = std::get_if<fx::ReroutedUnasked>(&effect)) return "rerouted unasked " + n(e->events);
    if (const auto* e = std::get_if<fx::Renew>(&effect)) return "renew stream " + n(e->stream.value);
    if (const auto* e = std::get_if<fx::Own>(&effect))
      return "r" + n(e->receiver) + " owns " + range(e->first, e->last) + " of stream " + n(e->stream.value);
    if (const auto* e = std::get_if<fx::Parked>(&effect))
      return "stream " + n(e->stream.value) + " parked from " + n(e->from);
    if (const auto* e = std::get_if<fx::Released>(&effect)) return "stream " + n(e->stream.value) + " released";
    if (std::holds_alternative<fx::Wanted>(effect)) return "wanted";
    const auto& send = std::get<fx::Send>(effect);
    std::string bytes = send.frame.head + std::string(send.frame.body.view());
    link::Frame frame = std::get<link::Frame>(link::decode(bytes)->frame);
    std::string to = "to r" + n(send.receiver) + " ";
    if (const auto* f = std::get_if<link::Events>(&frame)) {
      if (f->attempt) attempts[{f->first, f->last}] = f->attempt;
      sent_ += (sent_.empty() ? "r" : " r") + n(send.receiver) + " " + range(f->first, f->last);
      return to + "EVENTS stream " + n(f->stream.value) + " " + range(f->first, f->last) + " events " + n(f->events) +
             " settled " + n(f->settled) + " epoch " + n(f->hold_epoch) + " far " + n(f->far);
    }
    if (const auto* f = std::get_if<link::Resume>(&frame)) {
      resumes_[send.receiver].push_back(*f);
      std::string out = to + "RESUME";
      for (const auto& s : f->streams) out += " stream " + n(s.stream.value) + " settled " + n(s.settled);
      return out;
    }
    if (const auto* f = std::get_if<link::CloseStream>(&frame)) return to + "CLOSE stream " + n(f->stream.value);
    if (const auto* f = std::get_if<link::Decide>(&frame))
      return to + "DECIDE stream " + n(f->stream.value) + " publish " + n(f->publish.size()) + " discard " +
             n(f->discard.size());
    if (std::holds_alternative<link::Ping>(frame)) return to + "PING";
    if (std::holds_alternative<link::Pong>(frame)) return to + "PONG";
    return to + "?";
  }

  Random random_;
  std::unique_ptr<link::Sender> sender_;
  Instant now_{};
  std::map<size_t, std::vector<link::Resume>> resumes_;
  std::string sent_;
  std::string log_;
};

}  // namespace ph::test
