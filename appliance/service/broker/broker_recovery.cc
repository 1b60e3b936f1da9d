// The broker's start: what the journal has comes back into the workers, before they listen. Queued messages stay where
// they are (core/session/session.h); what is read here grows with sessions, subscriptions and retained messages.
//
// A record that cannot be read costs itself and is counted. A session whose own record is lost is erased.
#include <algorithm>
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

/// A session that had ended, and was handing on what shared subscriptions brought it.
struct Broker::Ending {
  uint64_t uid = 0;
  session::SessionRecord record;
};

Result<> Broker::recover() {
  std::vector<Ending> ending;
  PH_TRY(recover_sessions(ending));
  PH_TRY(recover_retained());
  recover_delayed();
  recover_events();
  for (auto& w : workers_) w->settle_mail();
  for (const Ending& e : ending)
    workers_[workers_.front()->home_of(e.record.client_id)]->restore_ending(e.uid, e.record);
  for (auto& w : workers_) w->settle_mail();
  redo_cut_short();
  return {};
}

Result<> Broker::recover_sessions(std::vector<Ending>& ending) {
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
  scan(keys::kEnding, [&](uint64_t uid, ByteView, ByteView value) {
    auto record = session::decode_session(value, clock);
    if (record)
      ending.push_back({uid, std::move(*record)});
    else
      journal_->erase(uid);
    return record.has_value();
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
    const auto number = session::decode_number(value);
    if (id.size() != 2 || !number) return false;
    const auto packet_id =
        static_cast<uint16_t>(static_cast<unsigned char>(id[0]) << 8 | static_cast<unsigned char>(id[1]));
    Restored& s = it->second;
    const CutShort message{s.worker, s.client->session->client_id(), uid, packet_id, *number};
    auto far = store.get(keys::far(uid, packet_id));
    if (far && *far) {
      s.client->session->taking(packet_id, 2);
      await_far_.push_back({message, std::move(**far)});
    } else {
      s.client->session->received(packet_id);
    }
    if (*number) cut_short_.push_back(message);
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

/// The sessions that have a message whose routing a crash cut short.
std::optional<Receivers> Broker::receivers_of(uint64_t number) {
  Receivers out;
  const std::string prefix = keys::of(keys::kHas, number);
  auto scanned = journal_->store().scan(prefix, [&](ByteView key, ByteView) {
    const auto uid = keys::number_in(key, prefix);
    if (!uid) return true;
    const ByteView filter = key.substr(prefix.size() + 8);
    (filter.empty() ? out.direct : out.shared[std::string(filter)]).insert(*uid);
    return true;
  });
  if (!scanned) return std::nullopt;
  return out;
}

/// Messages for later, with whichever workers there are now. One that was on its way to sessions goes on from there.
void Broker::recover_delayed() {
  const session::Clock clock{event_loop_->now(), event_loop_->wall_now()};
  uint64_t count = 0;
  auto scanned = journal_->store().scan(keys::kDelayed, [&](ByteView key, ByteView value) {
    const auto number = keys::number_in(key, keys::kDelayed);
    if (!number) {
      journal_->count_damaged();
      return true;
    }
    const auto record = session::decode_delayed(value, clock);
    auto stored = journal_->store().get(keys::of(keys::kMessage, *number));
    auto message = stored && *stored ? session::decode_message(**stored, clock) : nullptr;
    const auto has = receivers_of(*number);
    Worker& worker = *workers_[*number % workers_.size()];
    if (!record || !message || !has) {
      journal_->count_damaged();
      worker.redone_delayed(*number);
      return true;
    }
    message->number = *number;
    if (has->empty())
      worker.restore_delayed(message, *record);
    else
      cut_short_.push_back({&worker, {}, 0, 0, *number, true});
    ++count;
    return true;
  });
  if (!scanned) {
    journal_->count_damaged();
    log_error("delayed_unreadable", {{"error", scanned.error().to_string()}});
  }
  if (count) log_info("delayed_recovered", {{"messages", count}});
}

/// What of each event source was published above its cursor: when that comes again, those who have it are passed over.
void Broker::recover_events() {
  const std::string prefix(keys::kGot);
  std::string from = prefix;
  for (bool more = true; more;) {
    more = false;
    auto scanned = journal_->store().scan_from(prefix, from, [&](ByteView key, ByteView) {
      const auto stream = keys::number_in(key, prefix);
      const auto position = stream ? keys::number_in(key, keys::of(prefix, *stream)) : std::nullopt;
      if (!position) return true;
      published_[*stream] = std::max(published_[*stream], *position);
      if (*position == UINT64_MAX) return true;
      from = keys::of(prefix, *stream, *position + 1);  // not every session's: the next position's first
      more = true;
      return false;
    });
    if (!scanned) {
      journal_->count_damaged();
      log_error("events_got_unreadable", {{"error", scanned.error().to_string()}});
      return;
    }
  }
}

/// QoS 2 of routes with ack = "far": PUBREC waits on, as before the restart.
void Broker::await_far() {
  for (AwaitsFar& a : std::exchange(await_far_, {}))
    a.message.worker->await_far(a.message.client_id, {a.message.uid, a.message.packet_id, 2, true, 0, true},
                                std::move(a.waits_for));
}

/// Routes again what a crash cut short. The records that say so go only after the queues are on disk.
void Broker::redo_cut_short() {
  const session::Clock clock{event_loop_->now(), event_loop_->wall_now()};
  // As they were written down: a publisher's in its order.
  std::ranges::sort(cut_short_, {}, &CutShort::number);
  for (const CutShort& c : cut_short_) {
    const auto has = receivers_of(c.number);
    auto value = journal_->store().get(keys::of(keys::kMessage, c.number));
    auto message = value && *value ? session::decode_message(**value, clock) : nullptr;
    if (!message || !has) {
      journal_->count_damaged();
      continue;
    }
    message->number = c.number;
    message->redo = true;
    for (auto& w : workers_) w->redo(message, c.client_id, *has);
  }
  for (auto& w : workers_) w->flush_journal();
  for (const CutShort& c : cut_short_) {
    if (c.delayed)
      c.worker->redone_delayed(c.number);
    else
      c.worker->redone(c.uid, c.packet_id, c.number);
  }
  if (!cut_short_.empty()) log_info("messages_routed_again", {{"messages", cut_short_.size()}});
  cut_short_.clear();
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
