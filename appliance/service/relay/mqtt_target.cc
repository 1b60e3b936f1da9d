#include "service/relay/mqtt_target.h"

#include <algorithm>
#include <utility>

#include "base/log.h"
#include "codec/mqtt/text.h"
#include "service/relay/packed.h"

namespace ph::relay {
namespace {

void append_value(std::string& out, std::string_view value) {
  for (char c : value) out += (c == '+' || c == '#' || c == '\0') ? '_' : c;
}

/// Seconds left of a message's expiry, plus one; 0 if it never expires, nullopt if it has.
std::optional<uint64_t> remaining_expiry(const event::Block& block, WallTime now) {
  if (block.expiry_seconds_plus_one == 0) return 0;
  uint64_t total = block.expiry_seconds_plus_one - 1;
  int64_t spent = std::max<int64_t>(0, (to_unix_ms(now) - to_unix_ms(block.accepted_at)) / 1000);
  if (static_cast<uint64_t>(spent) >= total) return std::nullopt;
  return total - static_cast<uint64_t>(spent) + 1;
}

}  // namespace

std::string fill_node(std::string text, std::string_view site, std::string_view node) {
  for (auto [word, value] : {std::pair{std::string_view("{site}"), site}, {std::string_view("{node}"), node}})
    for (size_t at = text.find(word); at != text.npos; at = text.find(word, at + value.size()))
      text.replace(at, word.size(), value);
  return text;
}

std::string fill_topic(std::string_view topic_template, std::string_view topic, std::string_view category,
                       std::string_view origin) {
  std::string out;
  while (!topic_template.empty()) {
    if (topic_template.starts_with("{topic}")) {
      append_value(out, topic.empty() ? category : topic);
      topic_template.remove_prefix(7);
    } else if (topic_template.starts_with("{category}")) {
      append_value(out, category);
      topic_template.remove_prefix(10);
    } else if (topic_template.starts_with("{origin}")) {
      append_value(out, origin);
      topic_template.remove_prefix(8);
    } else {
      out += topic_template.front();
      topic_template.remove_prefix(1);
    }
  }
  return out;
}

MqttTarget::MqttTarget(std::string topic_template, port::EventSource& source, port::MessageSink& sink, port::Loop& loop,
                       Tap* tap, std::string site)
    : template_(std::move(topic_template)),
      source_(source),
      sink_(sink),
      loop_(loop),
      tap_(tap),
      site_(std::move(site)),
      retry_(loop.make_timer()) {}

MqttTarget::~MqttTarget() {
  *alive_ = false;
  source_.on_ready([] {});
}

void MqttTarget::start() {
  // What the cursor passed is at the end of its way, also when a crash kept that from being noted.
  for (const port::OpenStream& open : source_.open_streams()) source_.far_advanced(open.stream, open.settled);
  source_.on_ready([this] { soon(); });
  source_.on_closed([](StreamId) {});
  soon();
}

void MqttTarget::soon() {
  if (posted_) return;
  posted_ = true;
  loop_.post([this, alive = alive_] {
    if (!*alive) return;
    posted_ = false;
    pump();
  });
}

void MqttTarget::pump() {
  if (batch_ || settling_ >= kSettlingMax) return;
  batch_ = source_.next(kBatchBytes);
  if (!batch_) return;
  if (!sink_.remembers() || begun_ == batch_->stream) return publish_batch();
  begun_ = batch_->stream;
  settle(batch_->first, 0, [this] { publish_batch(); });
}

void MqttTarget::publish_batch() {
  unpack();
  next_slice();
}

/// Commits the cursor at `upto`, which is answered.
void MqttTarget::settle(uint64_t upto, uint64_t events, port::Task then) {
  ++settling_;
  const StreamId stream = batch_->stream;
  sink_.settle(stream, upto, source_.advance_entries(stream, upto, events),
               [this, alive = alive_, stream, upto, then = std::move(then)]() mutable {
                 if (!*alive) return;
                 --settling_;
                 source_.far_advanced(stream, upto);
                 then();
               });
}

void MqttTarget::unpack() {
  for_each_block(batch_->packed, batch_->first, batch_->last, [&](uint64_t first, uint64_t last, const Slice& encoded) {
    auto block = event::decode(encoded);
    std::string fault = block ? "" : block.error().to_string();
    std::string topic;
    if (block && block->gap) return;
    if (block) {
      topic = fill_topic(template_, block->topic, block->category,
                         block->hops.empty() ? std::string_view(site_) : block->hops.front());
      if (!mqtt::topic_valid(topic) || !mqtt::utf8_valid(topic) || topic.size() > UINT16_MAX || block->qos > 2)
        fault = "mqtt.bad_topic";
    }
    if (!fault.empty()) {
      batch_->events -= block ? block->events : 0;
      return source_.rejected(batch_->stream, first, last, encoded, fault);
    }
    pieces_.push_back({first, last, std::move(*block), std::move(topic)});
  });
}

void MqttTarget::next_slice() {
  slice_.clear();
  while (slice_.size() < kSliceMessages && !pieces_.empty()) take_from(pieces_.front());
  if (slice_.empty()) return finish();
  pass_on_slice();
}

/// Adds a message, or as many lines as have room; the piece goes with its last one.
void MqttTarget::take_from(Piece& piece) {
  event::Block& block = piece.block;
  if (block.kind == event::BlockKind::message) {
    if (auto expiry = remaining_expiry(block, loop_.wall_now())) {
      pass_on(piece, block.id, block.payload);
      slice_.push_back({std::move(piece.topic),
                        block.payload,
                        block.qos,
                        block.retain,
                        *expiry,
                        block.properties,
                        {},
                        batch_->stream,
                        piece.first,
                        0});
    } else {
      batch_->events -= block.events;
      source_.expired(batch_->stream, piece.first, piece.last);
    }
    return pieces_.pop_front();
  }
  const ByteView lines = block.payload.view();
  while (piece.offset < lines.size()) {
    if (slice_.size() == kSliceMessages) return;
    const size_t end = std::min(lines.find('\n', piece.offset), lines.size());
    event::EventId id = block.id;
    if (!block.atomic()) {
      id.first += piece.offset;
      id.last = block.id.first + end + 1;
    }
    pass_on(piece, id, block.payload.sub(piece.offset, end - piece.offset));
    const auto [position, part] = piece.place();
    slice_.push_back({piece.topic,
                      block.payload.sub(piece.offset, end - piece.offset),
                      1,
                      false,
                      0,
                      {},
                      {},
                      batch_->stream,
                      position,
                      part});
    piece.offset = end + 1;
  }
  pieces_.pop_front();
}

void MqttTarget::pass_on(const Piece& piece, event::EventId id, Slice payload) {
  if (!tap_ || !tap_->wants(piece.topic)) return;
  event::Block one = piece.block;
  one.newline_added = one.truncated = one.piece = false;
  one.id = id;
  one.events = 1;
  if (one.kind == event::BlockKind::lines) one.qos = 1;
  one.payload = std::move(payload);
  passing_.push_back({std::move(one), piece.topic});
}

/// The node's own routes first, durably: whatever commits the cursor, nothing of the event is missing then, and what a
/// full spool refuses is not delivered twice here (amendment 21).
void MqttTarget::pass_on_slice() {
  if (passing_.empty()) return publish_slice();
  std::vector<PassedOn> now = std::exchange(passing_, {});
  outstanding_ = now.size();
  for (PassedOn& p : now) {
    auto again = std::make_shared<PassedOn>(p);
    const bool taken = tap_->pass_on(std::move(p.block), p.topic, source_.route(),
                                     [this, alive = alive_, again](const Result<>& outcome) {
                                       if (!*alive) return;
                                       if (!outcome) passing_.push_back(std::move(*again));
                                       passed_on();
                                     });
    if (!taken) passed_on();
  }
}

void MqttTarget::passed_on() {
  if (--outstanding_ > 0) return;
  if (passing_.empty()) return publish_slice();
  wait_and([this] { pass_on_slice(); });
}

void MqttTarget::wait_and(port::Task then) {
  log_warn("mqtt_target_waits", {{"route", source_.route()}});
  retry_->start(kRetryAfter, std::move(then));
}

/// All of the slice at once, so that the broker spreads it in one turn. What it cannot take now is tried again, after
/// everything that was sent with it: order is then lost for those, never the message.
void MqttTarget::publish_slice() {
  outstanding_ = slice_.size();
  for (size_t i = 0; i < slice_.size(); ++i)
    sink_.publish(slice_[i], [this, alive = alive_, i](const Result<>& outcome) {
      if (*alive) answered(i, outcome);
    });
}

void MqttTarget::answered(size_t index, const Result<>& outcome) {
  if (!outcome) refused_.push_back(index);
  if (--outstanding_ > 0) return;
  if (refused_.empty()) return next_slice();
  std::ranges::sort(refused_);
  std::vector<port::Message> again;
  for (size_t i : std::exchange(refused_, {})) again.push_back(std::move(slice_[i]));
  slice_ = std::move(again);
  wait_and([this] { publish_slice(); });
}

void MqttTarget::finish() {
  if (sink_.remembers()) {
    settle(batch_->last, batch_->events, [this] { soon(); });
  } else {
    source_.advanced(batch_->stream, batch_->last, batch_->events, 0);
    source_.far_advanced(batch_->stream, batch_->last);
  }
  batch_.reset();
  soon();
}

}  // namespace ph::relay
