#include "core/session/message.h"

#include <utility>

namespace ph::session {
namespace {

/// In one allocation.
Slice copy_of(ByteView bytes) {
  std::shared_ptr<char[]> owner = std::make_shared_for_overwrite<char[]>(bytes.size());
  bytes.copy(owner.get(), bytes.size());
  const ByteView view(owner.get(), bytes.size());
  return {std::move(owner), view};
}

}  // namespace

void Outgoing::reset(const MessageView& view, Slice payload) {
  view_ = view;
  shared_ = nullptr;
  payload_ = std::move(payload);
  payload_kept_ = !payload_.empty();
  plain_valid_[0] = plain_valid_[1] = false;
}

void Outgoing::reset(MessagePtr message) {
  reset(message->view(), message->payload);
  shared_ = std::move(message);
}

const Slice& Outgoing::payload() {
  if (!payload_kept_) {
    if (!view_.payload.empty()) payload_ = copy_of(view_.payload);
    payload_kept_ = true;
  }
  return payload_;
}

const MessagePtr& Outgoing::share() {
  if (!shared_)
    shared_ = std::make_shared<Message>(Message{std::string(view_.topic),
                                                payload(),
                                                std::string(view_.properties),
                                                view_.qos,
                                                view_.retain,
                                                view_.expiry,
                                                view_.received,
                                                numbers_ ? numbers_->next() : 0,
                                                false,
                                                {}});
  return shared_;
}

MessagePtr without_records(const MessagePtr& message) {
  if (!message->redo && message->origin.stream == 0) return message;
  auto plain = std::make_shared<Message>(*message);
  plain->redo = false;
  plain->origin = {};
  return plain;
}

mqtt::PublishHead Outgoing::head(const Copy& copy, Instant now) const {
  mqtt::PublishHead head;
  if (!copy.topic_known) head.topic = view_.topic.substr(copy.topic_skip);
  head.topic_alias = copy.topic_alias;
  head.packet_id = copy.packet_id;
  head.qos = copy.qos;
  head.retain = copy.retain;
  head.dup = copy.dup;
  if (view_.expiry) {  // [MQTT-3.3.2-6]
    const auto waited = std::chrono::duration_cast<std::chrono::seconds>(now - view_.received).count();
    head.message_expiry =
        static_cast<uint64_t>(waited) < *view_.expiry ? *view_.expiry - static_cast<uint32_t>(waited) : 0;
  }
  head.subscription_ids = copy.subscription_ids.data();
  head.subscription_ids_count = copy.subscription_ids.size();
  head.properties = view_.properties;
  head.payload_size = view_.payload.size();
  return head;
}

size_t Outgoing::size(mqtt::Version version, const Copy& copy, Instant now) const {
  return mqtt::publish_size(head(copy, now), version);
}

void Outgoing::write(Output& output, mqtt::Version version, const Copy& copy, Instant now) {
  const bool small = view_.payload.size() <= kInlinePayload;
  const bool plain = copy.plain();
  const size_t form = version == mqtt::Version::v5 ? 1 : 0;
  std::string& bytes = plain ? plain_[form] : scratch_;
  if (!plain || !plain_valid_[form]) {
    bytes.clear();
    mqtt::encode_publish_head(head(copy, now), version, bytes);
    if (small) bytes.append(view_.payload);
    if (plain) plain_valid_[form] = true;
  }
  output.send_copy(bytes);
  if (!small) output.send(payload());
}

}  // namespace ph::session
