#include "service/relay/mqtt_target.h"

#include "base/log.h"
#include "codec/event/block.h"
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

std::string fill_topic(std::string_view topic_template, std::string_view topic, std::string_view category) {
  std::string out;
  while (!topic_template.empty()) {
    if (topic_template.starts_with("{topic}")) {
      append_value(out, topic.empty() ? category : topic);
      topic_template.remove_prefix(7);
    } else if (topic_template.starts_with("{category}")) {
      append_value(out, category);
      topic_template.remove_prefix(10);
    } else {
      out += topic_template.front();
      topic_template.remove_prefix(1);
    }
  }
  return out;
}

MqttTarget::MqttTarget(std::string topic_template, port::EventSource& source, port::MessageSink& sink, port::Loop& loop)
    : template_(std::move(topic_template)), source_(source), sink_(sink), loop_(loop), retry_(loop.make_timer()) {}

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
  if (batch_) return;
  batch_ = source_.next(kBatchBytes);
  if (!batch_) return;
  unpack(*batch_);
  if (waiting_.empty()) return finish();
  publish_all();
}

void MqttTarget::unpack(port::Batch& batch) {
  for_each_block(batch.packed, batch.first, batch.last, [&](uint64_t first, uint64_t last, const Slice& encoded) {
    auto block = event::decode(encoded);
    if (!block) {
      source_.rejected(batch.stream, first, last, encoded, block.error().to_string());
      return;
    }
    if (block->gap) return;
    std::string topic = fill_topic(template_, block->topic, block->category);
    if (block->kind == event::BlockKind::message) {
      auto expiry = remaining_expiry(*block, loop_.wall_now());
      if (!expiry) {
        ++expired_;
        return;
      }
      waiting_.push_back({std::move(topic), block->payload, block->qos, block->retain, *expiry, block->properties});
      return;
    }
    ByteView rest = block->payload.view();
    size_t offset = 0;
    while (!rest.empty()) {
      size_t end = rest.find('\n');
      waiting_.push_back({topic, block->payload.sub(offset, end), 1, false, 0, {}});
      offset += end + 1;
      rest.remove_prefix(end + 1);
    }
  });
}

void MqttTarget::publish_all() {
  // All at once, so that the broker spreads them in one turn; what it cannot take comes back and is tried again, after
  // everything that was sent with it: order is then lost for those, never the message.
  auto messages = std::exchange(waiting_, {});
  outstanding_ = messages.size();
  for (port::Message& message : messages) {
    port::Message again = message;
    sink_.publish(std::move(message), [this, alive = alive_, again = std::move(again)](Result<> outcome) mutable {
      if (!*alive) return;
      if (!outcome) waiting_.push_back(std::move(again));
      if (--outstanding_ > 0) return;
      if (waiting_.empty()) return finish();
      log_warn("mqtt_target_waits", {{"route", source_.route()}});
      retry_->start(kRetryAfter, [this] { publish_all(); });
    });
  }
}

void MqttTarget::finish() {
  source_.advanced(batch_->stream, batch_->last, batch_->events, 0);
  source_.far_advanced(batch_->stream, batch_->last);
  batch_.reset();
  soon();
}

}  // namespace ph::relay
