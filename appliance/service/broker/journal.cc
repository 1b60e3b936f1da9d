#include "service/broker/journal.h"

#include <algorithm>

#include "base/coding.h"
#include "base/log.h"
#include "service/broker/options.h"

namespace ph::broker {

namespace keys = session::keys;

Result<std::unique_ptr<Journal>> Journal::open(Durability durability, port::Loop& loop, port::KeyedStore& store,
                                               commit::Committer& committer) {
  std::unique_ptr<Journal> out(new Journal(durability, loop, store, committer));
  port::WriteBatch entries;
  PH_ASSIGN(auto format, store.get(keys::kFormat));
  if (format && (format->size() != 1 || static_cast<uint8_t>(format->front()) > session::kFormat))
    return fail(errors::state_newer, "sessions were written by a newer posthouse");
  if (!format) entries.put(std::string(keys::kFormat), std::string(1, static_cast<char>(session::kFormat)));
  PH_ASSIGN(auto stored, store.get(keys::kNumbers));
  Reader in(stored ? ByteView(*stored) : ByteView());
  const uint64_t begin = stored ? in.fixed<uint64_t>() : 1;
  if (!in.ok() || begin == 0) return fail(errors::state_damaged, "the record of used numbers cannot be read");
  std::string end;
  put_fixed(end, begin + kNumbersAhead);
  entries.put(std::string(keys::kNumbers), std::move(end));
  PH_TRY(store.write(entries, true));
  out->next_number_ = begin;
  out->numbers_end_ = begin + kNumbersAhead;
  out->counts_from_ = begin;
  return out;
}

Journal::~Journal() {
  *alive_ = false;
}

uint64_t Journal::take_numbers(uint64_t count) {
  const uint64_t first = next_number_.fetch_add(count, std::memory_order_relaxed);
  const uint64_t end = numbers_end_.load(std::memory_order_relaxed);
  PH_ASSERT(first + count <= end, "numbers are reserved long before");
  // From here, not with what is written: sessions and messages that leave nothing on disk use numbers, too.
  if (end - (first + count) < kNumbersAhead / 2 && !extending_.exchange(true, std::memory_order_relaxed))
    loop_.post([this, alive = alive_] {
      if (*alive) extend_numbers();
    });
  return first;
}

namespace {

size_t memory_of(const JournalBatch& batch) {
  constexpr size_t kEach = 128;  // an entry's strings, their heap blocks, its place in the store's batch
  const auto& entries = batch.entries.entries();
  size_t sum = kEach * (1 + entries.size() + batch.references.size() + batch.receivers.size() + batch.covers.size());
  for (const auto& e : entries) sum += e.key.size() + (e.value ? e.value->size() : 0);
  for (const JournalBatch::Reference& r : batch.references) sum += session::bytes_of(r.message);
  return sum;
}

}  // namespace

void Journal::submit(JournalBatch batch) {
  batch.bytes = memory_of(batch);
  waiting_.fetch_add(1, std::memory_order_relaxed);
  waiting_bytes_.fetch_add(batch.bytes, std::memory_order_relaxed);
  loop_.post([this, alive = alive_, batch = std::move(batch)]() mutable {
    if (*alive) accept(std::move(batch));
  });
}

JournalStats Journal::stats() const {
  JournalStats s;
  s.batches = batches_.load(std::memory_order_relaxed);
  s.waiting = waiting_.load(std::memory_order_relaxed);
  s.waiting_bytes = waiting_bytes_.load(std::memory_order_relaxed);
  s.store_failures = committer_.store_failures();
  s.damaged_records = damaged_.load(std::memory_order_relaxed);
  s.recovered_sessions = recovered_sessions_;
  s.recovered_retained = recovered_retained_;
  return s;
}

void Journal::accept(JournalBatch batch) {
  if (durability_ == Durability::fsync) return write(std::move(batch));
  const bool now = batch.urgent || held_.size() >= kLazyBatches || held_bytes_ >= kLazyBytes;
  held_bytes_ += batch.bytes;
  held_.push_back(std::move(batch));
  if (now) return write_held();
  if (!timer_->pending()) timer_->start(kLazyInterval, [this] { write_held(); });
}

void Journal::write_held() {
  timer_->cancel();
  held_bytes_ = 0;
  for (JournalBatch& batch : std::exchange(held_, {})) write(std::move(batch));
}

void Journal::write(JournalBatch batch) {
  const uint64_t group = ++last_group_;
  port::WriteBatch entries = std::move(batch.entries);
  for (const auto& reference : batch.references) apply(reference, entries);
  batch.references.clear();
  for (const auto& receiver : batch.receivers) {
    entries.put(receiver.key(), {});
    receivers_.emplace(receiver.number, receiver.key());
  }
  for (uint64_t number : batch.routed) forget_receivers(number, entries);
  committer_.request_alone(std::move(entries), [this, alive = alive_, group, batch = std::move(batch)] {
    if (*alive) on_written(batch, group);
  });
  if (counts_.size() > kCountsMax) shrink_counts();
}

void Journal::on_written(const JournalBatch& batch, uint64_t group) {
  written_group_ = group;
  waiting_.fetch_sub(1, std::memory_order_relaxed);
  waiting_bytes_.fetch_sub(batch.bytes, std::memory_order_relaxed);
  batches_.fetch_add(1, std::memory_order_relaxed);
  JournalMember* owner = members_[batch.worker];
  owner->journal_loop().post([owner, turn = batch.turn] { owner->on_durable(turn); });
  for (const auto& cover : batch.covers) {
    JournalMember* source = members_[cover.source];
    source->journal_loop().post(
        [source, by = batch.worker, sequence = cover.sequence] { source->on_covered(by, sequence); });
  }
  for (const auto& receiver : batch.receivers) {
    const auto [from, to] = receivers_.equal_range(receiver.number);
    const auto it = std::find_if(from, to, [key = receiver.key()](const auto& r) { return r.second == key; });
    if (it != to) receivers_.erase(it);
  }
  for (uint64_t uid : batch.ended) erase(uid);
}

// --- messages

Journal::Count& Journal::count_of(uint64_t number) {
  auto [it, fresh] = counts_.try_emplace(number);
  if (!fresh || number >= counts_from_) return it->second;
  // From before this start, or not touched for long: the store knows. What it cannot read counts as one.
  auto stored = store_.get(keys::of(keys::kCount, number));
  if (stored && *stored) {
    it->second.entries = session::decode_number(**stored).value_or(1);
  } else if (stored) {
    auto message = store_.get(keys::of(keys::kMessage, number));
    it->second.entries = message && !*message ? 0 : 1;
  } else {
    it->second.entries = 1;
  }
  return it->second;
}

void Journal::apply(const JournalBatch::Reference& reference, port::WriteBatch& entries) {
  Count& count = count_of(reference.number);
  count.group = last_group_;
  const uint64_t before = count.entries;
  if (reference.message) {
    if (before == 0)
      entries.put(keys::of(keys::kMessage, reference.number), session::encode(*reference.message, clock()));
    ++count.entries;
  } else if (before > 0) {
    --count.entries;
    if (before == 1) entries.remove(keys::of(keys::kMessage, reference.number));
  }
  if (count.entries > 1)
    entries.put(keys::of(keys::kCount, reference.number), session::encode_number(count.entries));
  else if (before > 1)
    entries.remove(keys::of(keys::kCount, reference.number));
  // Below counts_from_ zero is remembered until the erasure is in the store, which shows the old count until then.
  if (count.entries == 0 && reference.number >= counts_from_) counts_.erase(reference.number);
}

/// All sessions have the message, on disk or in what was written before this.
void Journal::forget_receivers(uint64_t number, port::WriteBatch& entries) {
  const auto [from, to] = receivers_.equal_range(number);
  for (auto it = from; it != to; ++it) entries.remove(it->second);
  auto scanned = store_.scan(keys::of(keys::kHas, number), [&](ByteView key, ByteView) {
    entries.remove(std::string(key));
    return true;
  });
  if (!scanned) count_damaged();
}

/// Forgets counts that the store has. From then on a number that is missing here is looked for there.
void Journal::shrink_counts() {
  std::erase_if(counts_, [this](const auto& c) { return c.second.group <= written_group_; });
  counts_from_ = next_number_.load(std::memory_order_relaxed);
}

void Journal::extend_numbers() {
  const uint64_t end = numbers_end_.load(std::memory_order_relaxed) + kNumbersAhead;
  port::WriteBatch entries;
  std::string value;
  put_fixed(value, end);
  entries.put(std::string(keys::kNumbers), std::move(value));
  committer_.request_alone(std::move(entries), [this, alive = alive_, end] {
    if (!*alive) return;
    numbers_end_ = end;
    extending_ = false;
  });
}

void Journal::settle(uint64_t stream, uint64_t upto, port::WriteBatch cursor, port::Task done) {
  if (settled_.size() >= kSettledMax) settled_.clear();
  uint64_t& below = settled_[stream];
  const std::string prefix = keys::of(keys::kGot, stream);
  auto scanned = store_.scan_from(prefix, keys::of(keys::kGot, stream, below), [&](ByteView key, ByteView) {
    const auto position = keys::number_in(key, prefix);
    if (position && *position >= upto) return false;
    cursor.remove(std::string(key));
    return true;
  });
  if (!scanned) count_damaged();
  below = std::max(below, upto);
  committer_.request_alone(std::move(cursor), std::move(done));
}

// --- erasing sessions

void Journal::erase(uint64_t uid) {
  erasing_.push_back(uid);
  if (!std::exchange(erase_running_, true))
    loop_.post([this, alive = alive_] {
      if (*alive) erase_some();
    });
}

/// Puts up to `left` records of a session on the way out; false if it has more.
bool Journal::erase_records(uint64_t uid, size_t& left, port::WriteBatch& entries) {
  for (ByteView prefix :
       {keys::kEntry, keys::kSubscription, keys::kInbound, keys::kFar, keys::kWill, keys::kSession, keys::kEnding}) {
    bool more = false;
    auto scanned = store_.scan(keys::of(prefix, uid), [&](ByteView key, ByteView value) {
      if (left == 0) return !(more = true);
      --left;
      entries.remove(std::string(key));
      const auto entry = prefix == keys::kEntry ? session::decode_entry(value) : std::nullopt;
      if (entry && entry->number) apply({entry->number, nullptr}, entries);
      const uint64_t named = prefix == keys::kInbound ? session::decode_number(value).value_or(0) : 0;
      if (named) {
        apply({named, nullptr}, entries);
        forget_receivers(named, entries);
      }
      return true;
    });
    if (!scanned) count_damaged();
    if (more) return false;
  }
  entries.remove(keys::of(keys::kErasing, uid));
  return true;
}

/// A bounded step: some records of the first sessions in line, in one batch; the next step follows its commit.
void Journal::erase_some() {
  if (erasing_.empty()) {
    erase_running_ = false;
    return;
  }
  ++last_group_;
  port::WriteBatch entries;
  size_t left = kEraseStep;
  for (size_t sessions = 0; sessions < kEraseSessions && !erasing_.empty(); ++sessions) {
    if (!erase_records(erasing_.front(), left, entries)) break;
    erasing_.pop_front();
  }
  waiting_.fetch_add(1, std::memory_order_relaxed);
  committer_.request_alone(std::move(entries), [this, alive = alive_, group = last_group_] {
    if (!*alive) return;
    written_group_ = group;
    waiting_.fetch_sub(1, std::memory_order_relaxed);
    erase_some();
  });
}

}  // namespace ph::broker
