// The broker's start: what the journal has comes back into the workers, before they listen. Queued messages stay where
// they are (core/session/session.h); what is read here grows with sessions, subscriptions and retained messages.
//
// A record that cannot be read costs itself and is counted. A session whose own record is lost is erased.
#include <unordered_map>

#include "base/log.h"
#include "core/session/records.h"
#include "service/broker/broker.h"
#include "service/broker/worker.h"

namespace ph::broker {

namespace keys = session::keys;

namespace {

struct Restored {
  Worker* worker = nullptr;
  Client* client = nullptr;
  bool was_attached = false;
};

}  // namespace

Result<> Broker::recover() {
  PH_TRY(recover_sessions());
  PH_TRY(recover_retained());
  for (auto& w : workers_) w->settle_mail();
  return {};
}

Result<> Broker::recover_sessions() {
  const session::Clock clock{event_loop_->now(), event_loop_->wall_now()};
  std::unordered_map<uint64_t, Restored> sessions;
  port::KeyedStore& store = journal_->store();
  // What the store cannot show is lost to us, and no reason to serve nobody.
  auto scan = [&](ByteView prefix, auto&& visit) {
    auto scanned = store.scan(prefix, [&](ByteView key, ByteView value) {
      const auto uid = keys::number_in(key, prefix);
      if (!uid || !visit(*uid, key.substr(prefix.size() + 8), value)) journal_->count_damaged();
      return true;
    });
    if (scanned) return;
    journal_->count_damaged();
    log_error("broker_state_unreadable", {{"records", std::string(prefix)}, {"error", scanned.error().to_string()}});
  };
  scan(keys::kErasing, [&](uint64_t uid, ByteView, ByteView) {
    journal_->erase(uid);
    return true;
  });
  scan(keys::kSession, [&](uint64_t uid, ByteView, ByteView value) {
    const auto record = session::decode_session(value, clock);
    Client* client = nullptr;
    Worker* home = nullptr;
    if (record) {
      home = workers_[workers_.front()->home_of(record->client_id)].get();
      client = home->restore(uid, *record);
    }
    if (client)
      sessions.emplace(uid, Restored{home, client, !record->detached_at});
    else
      journal_->erase(uid);
    return client != nullptr;
  });
  scan(keys::kSubscription, [&](uint64_t uid, ByteView filter, ByteView value) {
    auto it = sessions.find(uid);
    if (it == sessions.end()) return true;  // of a session that is being erased
    const auto subscription = session::decode_subscription(value);
    if (!subscription || filter.empty()) return false;
    it->second.worker->restore_subscription(*it->second.client, std::string(filter), *subscription);
    return true;
  });
  scan(keys::kInbound, [&](uint64_t uid, ByteView id, ByteView value) {
    auto it = sessions.find(uid);
    if (it == sessions.end()) return true;
    if (id.size() != 2 || !session::decode_number(value)) return false;
    const auto packet_id =
        static_cast<uint16_t>(static_cast<unsigned char>(id[0]) << 8 | static_cast<unsigned char>(id[1]));
    it->second.client->session->received(packet_id);
    return true;
  });
  scan(keys::kWill, [&](uint64_t uid, ByteView, ByteView value) {
    auto it = sessions.find(uid);
    if (it == sessions.end()) return true;
    auto will = session::decode_will(value, clock);
    if (!will) return false;
    it->second.worker->restore_will(*it->second.client, std::move(*will), it->second.was_attached);
    return true;
  });
  for (auto& [uid, s] : sessions) s.worker->restored(*s.client, s.was_attached);
  if (!sessions.empty()) log_info("sessions_recovered", {{"sessions", sessions.size()}});
  journal_->count_recovered(sessions.size(), 0);
  return {};
}

Result<> Broker::recover_retained() {
  const session::Clock clock{event_loop_->now(), event_loop_->wall_now()};
  uint64_t count = 0;
  auto scanned = journal_->store().scan(keys::kRetained, [&](ByteView, ByteView value) {
    auto record = session::decode_retained(value, clock);
    if (!record) {
      journal_->count_damaged();
      return true;
    }
    if (session::expired(record->message->view(), clock.now)) return true;
    record->message->number = journal_->take_numbers(1);
    for (auto& w : workers_) w->restore_retained(record->message, record->version);
    ++count;
    return true;
  });
  if (!scanned) {
    journal_->count_damaged();
    log_error("retained_unreadable", {{"error", scanned.error().to_string()}});
  }
  if (count) log_info("retained_recovered", {{"messages", count}});
  journal_->count_recovered(journal_->stats().recovered_sessions, count);
  return {};
}

}  // namespace ph::broker
