#include "service/broker/durable_sessions.h"

#include <algorithm>

#include "base/coding.h"
#include "base/log.h"

namespace ph::broker {

namespace keys = session::keys;

namespace {
constexpr uint64_t kNumbersAtOnce = 4096;

std::string got_key(const session::Origin& origin, uint64_t uid, const session::SharedKey& shared) {
  std::string out = keys::got(origin);
  put_key(out, uid);
  if (shared) out += *shared;
  return out;
}
}  // namespace

void DurableSessions::put(std::string key, std::string value) {
  ++changes_;
  batch_.entries.put(std::move(key), std::move(value));
  mark_dirty();
}

void DurableSessions::erase(std::string key) {
  ++changes_;
  batch_.entries.remove(std::move(key));
  mark_dirty();
}

uint64_t DurableSessions::next() {
  if (numbers_next_ == numbers_end_) {
    numbers_next_ = journal_.take_numbers(kNumbersAtOnce);
    numbers_end_ = numbers_next_ + kNumbersAtOnce;
  }
  return numbers_next_++;
}

// --- changes

void DurableSessions::add(uint64_t uid, uint64_t sequence, const session::MessagePtr& message, uint8_t qos, bool retain,
                          std::span<const uint32_t> subscription_ids, const session::SharedKey& shared) {
  PH_ASSERT(message->number != 0, "a message in a durable session has a number");
  ++added_;
  put(keys::of(keys::kEntry, uid, sequence),
      session::encode_entry(qos, retain, false, 0, message->number, subscription_ids,
                            shared ? ByteView(*shared) : ByteView()));
  batch_.references.push_back({message->number, message});
  if (message->origin.stream != 0 && waits()) put(got_key(message->origin, uid, shared), {});
  if (message->redo) batch_.receivers.push_back({message->number, uid, shared});
}

void DurableSessions::record(uint64_t uid, uint16_t packet_id, const session::MessagePtr& message) {
  put(keys::inbound(uid, packet_id), session::encode_number(message->number));
  batch_.references.push_back({message->number, message});
}

port::WriteBatch DurableSessions::recording(uint64_t uid, uint16_t packet_id, const session::Message& message) const {
  port::WriteBatch out;
  out.put(keys::inbound(uid, packet_id), session::encode_number(message.number));
  out.put(keys::of(keys::kMessage, message.number), session::encode(message, clock()));
  return out;
}

void DurableSessions::routed(uint64_t uid, uint16_t packet_id, uint64_t number) {
  inbound(uid, packet_id, true);
  batch_.references.push_back({number, nullptr});
  batch_.routed.push_back(number);
}

void DurableSessions::put_off(const session::MessagePtr& message, const session::DelayedRecord& record) {
  put(keys::of(keys::kDelayed, message->number), session::encode(record, clock()));
  batch_.references.push_back({message->number, message});
}

port::WriteBatch DurableSessions::tapping(uint64_t number, const session::DelayedRecord& record) const {
  port::WriteBatch out;
  out.put(keys::of(keys::kDelayed, number), session::encode(record, clock()));
  return out;
}

void DurableSessions::delayed_done(uint64_t number, bool redo) {
  erase(keys::of(keys::kDelayed, number));
  batch_.references.push_back({number, nullptr});
  if (redo) batch_.routed.push_back(number);
}

bool DurableSessions::got(const session::Origin& origin, uint64_t uid, const session::SharedKey& shared) {
  if (uid != 0) {
    const auto value = journal_.store().get(got_key(origin, uid, shared));
    return value && *value;
  }
  bool found = false;
  const std::string prefix = keys::got(origin);
  const auto scanned = journal_.store().scan(prefix, [&](ByteView key, ByteView) {
    found = key.size() > prefix.size() + 8 && key.substr(prefix.size() + 8) == *shared;
    return !found;
  });
  if (!scanned) journal_.count_damaged();
  return found;
}

void DurableSessions::change(uint64_t uid, const session::KeptEntry& entry, uint64_t number) {
  const uint64_t names = entry.message ? entry.message->number : 0;
  put(keys::of(keys::kEntry, uid, entry.sequence),
      session::encode_entry(entry.qos, entry.retain, entry.released, entry.packet_id, names, entry.subscription_ids,
                            entry.shared ? ByteView(*entry.shared) : ByteView()));
  if (names == 0 && number != 0) batch_.references.push_back({number, nullptr});
}

void DurableSessions::remove(uint64_t uid, uint64_t sequence, uint64_t number) {
  erase(keys::of(keys::kEntry, uid, sequence));
  if (number != 0) batch_.references.push_back({number, nullptr});
}

void DurableSessions::inbound(uint64_t uid, uint16_t packet_id, bool awaits) {
  if (awaits)
    put(keys::inbound(uid, packet_id), session::encode_number(0));
  else
    erase(keys::inbound(uid, packet_id));
}

void DurableSessions::touch(session::Session& session) {
  if (std::exchange(session.marks.touched, true)) return;
  ++changes_;
  touched_.push_back(&session);
  mark_dirty();
}

void DurableSessions::subscribed(uint64_t uid, const std::string& filter, const session::Subscription& subscription) {
  put(keys::of(keys::kSubscription, uid, filter), session::encode(subscription));
}

void DurableSessions::unsubscribed(uint64_t uid, const std::string& filter) {
  erase(keys::of(keys::kSubscription, uid, filter));
}

void DurableSessions::will(uint64_t uid, const std::optional<session::SessionWill>& will) {
  if (will)
    put(keys::of(keys::kWill, uid), session::encode(*will, clock()));
  else
    erase(keys::of(keys::kWill, uid));
}

void DurableSessions::retained(const std::string& topic, uint64_t version, const session::MessagePtr& message) {
  std::string key(keys::kRetained);
  key += topic;
  if (message)
    put(std::move(key), session::encode_retained(version, *message, clock()));
  else
    erase(std::move(key));
}

void DurableSessions::leave(session::Session& session) {
  if (session.marks.touched) put(keys::of(keys::kSession, session.uid()), session::encode(session.record(), clock()));
  forget(session);
}

void DurableSessions::forget(session::Session& session) {
  if (std::exchange(session.marks.touched, false)) std::erase(touched_, &session);
  if (std::exchange(session.marks.waking, false))
    std::erase_if(waking_, [&](const auto& w) { return w.second == &session; });
}

void DurableSessions::ending(const session::Session& session) {
  erase(keys::of(keys::kSession, session.uid()));
  put(keys::of(keys::kEnding, session.uid()), session::encode(session.record(), clock()));
}

void DurableSessions::ended(uint64_t uid) {
  erase(keys::of(keys::kEnding, uid));
  put(keys::of(keys::kErasing, uid), {});
  batch_.ended.push_back(uid);
}

// --- turns

void DurableSessions::flush() {
  if (!dirty_) return;
  for (session::Session* s : std::exchange(touched_, {})) {
    s->marks.touched = false;
    batch_.entries.put(keys::of(keys::kSession, s->uid()), session::encode(s->record(), clock()));
  }
  dirty_ = false;
  batch_.worker = worker_;
  batch_.turn = turn_++;
  batch_.urgent = std::exchange(urgent_, false);
  journal_.submit(std::exchange(batch_, {}));
}

void DurableSessions::wake(session::Session& session) {
  if (std::exchange(session.marks.waking, true)) return;
  waking_.emplace_back(turn_, &session);
  urgent_ = true;
  mark_dirty();
}

void DurableSessions::after(uint64_t turn, port::Task then) {
  if (may_send(turn)) return then();
  if (!waiting_.empty()) turn = std::max(turn, waiting_.back().first);  // not before those that wait already
  waiting_.emplace_back(turn, std::move(then));
  if (turn == turn_) mark_dirty();
}

void DurableSessions::once_durable(uint64_t turn, port::Task then) {
  if (durable(turn)) return then();
  if (!waiting_.empty()) turn = std::max(turn, waiting_.back().first);
  waiting_.emplace_back(turn, std::move(then));
  urgent_ = true;
  mark_dirty();
}

void DurableSessions::on_durable(uint64_t turn) {
  durable_ = turn;
  // What runs may end sessions and ask for more.
  for (size_t left = waking_.size(); left > 0 && !waking_.empty() && waking_.front().first <= turn; --left) {
    session::Session* s = waking_.front().second;
    waking_.pop_front();
    s->marks.waking = false;
    s->pump(loop_.now());
  }
  while (!waiting_.empty() && waiting_.front().first <= turn) {
    port::Task then = std::move(waiting_.front().second);
    waiting_.pop_front();
    then();
  }
}

// --- reading

session::KeptPage DurableSessions::load(uint64_t uid, uint64_t from, size_t messages_max, size_t bytes_max) {
  session::KeptPage page;
  page.next = from;
  page.end = true;
  std::vector<session::EntryRecord> records;
  const auto scanned = journal_.store().scan_from(keys::of(keys::kEntry, uid), keys::of(keys::kEntry, uid, from),
                                                  [&](ByteView key, ByteView value) {
                                                    if (records.size() == messages_max) {
                                                      page.end = false;
                                                      return false;
                                                    }
                                                    const auto sequence = keys::second_in(key, keys::kEntry);
                                                    auto record = session::decode_entry(value);
                                                    if (sequence) page.next = *sequence + 1;
                                                    if (sequence && record) {
                                                      record->sequence = *sequence;
                                                      records.push_back(std::move(*record));
                                                      return true;
                                                    }
                                                    journal_.count_damaged();
                                                    erase(std::string(key));
                                                    return true;
                                                  });
  if (!scanned) {
    journal_.count_damaged();
    log_error("session_page_unreadable", {{"error", scanned.error().to_string()}});
  }
  size_t bytes = 0;
  for (session::EntryRecord& r : records) {
    if (bytes > bytes_max) {
      page.next = r.sequence;
      page.end = false;
      break;
    }
    session::KeptEntry e{r.sequence,  nullptr, std::move(r.subscription_ids), r.qos, r.retain, r.released,
                         r.packet_id, nullptr};
    if (!r.shared.empty()) e.shared = std::make_shared<const std::string>(std::move(r.shared));
    if (!r.released) {
      auto value = journal_.store().get(keys::of(keys::kMessage, r.number));
      auto message = value && *value ? session::decode_message(**value, clock()) : nullptr;
      if (!message) {  // an entry without its message is nothing
        journal_.count_damaged();
        remove(uid, r.sequence, r.number);
        continue;
      }
      message->number = r.number;
      bytes += message->bytes();
      e.message = std::move(message);
    }
    page.entries.push_back(std::move(e));
  }
  return page;
}

}  // namespace ph::broker
