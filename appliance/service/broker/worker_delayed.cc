// The worker's messages for later ($delayed/<seconds>/<topic>). With a journal they are on disk before they are
// acknowledged, and go from there in the batch that has the queue entries of those who get them. If other workers or a
// tap take part there is no one batch: then each session that has the message leaves a record (m/h/), the tap's own
// commit notes that it has it, and the message's record goes last. A start goes on from what it finds.
#include "base/log.h"
#include "service/broker/worker.h"

namespace ph::broker {
namespace {

constexpr size_t kDuePerTurn = 256;
constexpr Duration kTapRetry = 1s;

}  // namespace

/// nullopt: the answer follows the disk.
std::optional<mqtt::ReasonCode> Worker::put_off(ClientConnection& connection, uint16_t packet_id,
                                                session::MessageView view, uint32_t seconds) {
  uint64_t waiting = 0;  // on all workers, as far as this one sees
  for (const Worker* w : workers_) waiting += w->counters().delayed.get();
  view.received += std::chrono::seconds(seconds);  // its expiry begins when it is published
  const session::Session& publisher = *connection.client->session;
  const session::Publisher from{publisher.client_id(), publisher.owner(), connection.peer().address};
  if (waiting >= options_.delayed_messages_max ||
      !delayed_.fits(view.topic.size() + view.payload.size() + view.properties.size() + from.bytes())) {
    context_.counters.limit(session::Limit::delayed);
    return mqtt::ReasonCode::quota_exceeded;
  }
  outgoing_.reset(view);
  const session::MessagePtr message = outgoing_.share();
  delayed_.add(view.received, {message, seconds, false, from});
  context_.counters.delayed.add();
  if (!durable_) return mqtt::ReasonCode::success;
  durable_->put_off(message, {false, view.received, seconds, from});
  if (view.qos == 2 && publisher.durable()) durable_->inbound(publisher.uid(), packet_id, true);
  if (view.qos == 0 || !durable_->waits()) return mqtt::ReasonCode::success;
  durable_->after(durable_->turn(),
                  [this, id = publisher.client_id(), taken = Taken{connection.client->uid, packet_id, view.qos, true}] {
                    on_taken(id, taken, false);
                  });
  return std::nullopt;
}

void Worker::publish_delayed(Instant now) {
  for (size_t left = kDuePerTurn; left > 0; --left) {
    auto entry = delayed_.take_due(now);
    if (!entry) return;
    if (session::expired(entry->message->view(), now)) {
      context_.counters.drop(session::Drop::expired);
      finish_delayed(*entry, false);
    } else if (!entry->tapped && !may_publish_absent(entry->publisher, entry->message->topic)) {
      context_.counters.publish_denied.add();
      log_info("delayed_message_denied", {{"client_id", entry->publisher.client_id}, {"topic", entry->message->topic}});
      finish_delayed(*entry, false);
    } else if (!entry->tapped && tap_ && tap_->wants(entry->message->topic)) {
      tap_delayed(std::move(*entry));
    } else {
      route_delayed(*entry);
    }
    if (std::exchange(pressed_, false)) return;  // the tick goes on, when others have caught up
  }
  if (std::exchange(delayed_posted_, true)) return;
  loop_.post([this] {
    delayed_posted_ = false;
    if (!stopping_) publish_delayed(loop_.now());
  });
}

/// Its publisher was told that it is taken: what the event plane has no room for now is offered again.
void Worker::tap_delayed(DelayedStore::Entry entry) {
  const session::Message& message = *entry.message;
  port::WriteBatch with;
  if (durable_) with = durable_->tapping(message.number, {true, message.received, entry.seconds, entry.publisher});
  port::Message event = for_tap(message);
  tap_->take(std::move(event), std::move(with), [this, entry = std::move(entry)](const Result<>& outcome) {
    loop_.post([this, entry, taken = outcome.has_value(),
                never = !outcome && outcome.error().code == port::errors::never_taken] {
      if (!taken && !never) return delayed_.put_back(loop_.now() + kTapRetry, entry);
      if (never) context_.counters.drop(session::Drop::tap_failed);
      route_delayed(entry);
    });
  });
}

void Worker::route_delayed(const DelayedStore::Entry& entry) {
  const bool redo = durable_ && durable_->waits() && workers_.size() > 1;
  auto due = std::make_shared<session::Message>(*entry.message);
  due->redo = redo;
  outgoing_.reset(std::move(due));
  route(outgoing_, nullptr);
  if (!redo) return finish_delayed(entry, false);
  when_taken(wanted_, [this, entry] { finish_delayed(entry, true); });
}

void Worker::finish_delayed(const DelayedStore::Entry& entry, bool redo) {
  delayed_.finished(entry);
  context_.counters.delayed.subtract();
  if (durable_) durable_->delayed_done(entry.message->number, redo);
}

void Worker::restore_delayed(const std::shared_ptr<session::Message>& message, const session::DelayedRecord& record) {
  message->received = record.due;
  delayed_.restore(record.due, {message, record.seconds, record.tapped, record.publisher});
  context_.counters.delayed.add();
}

}  // namespace ph::broker
