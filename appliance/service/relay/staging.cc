#include "service/relay/staging.h"

#include <algorithm>

#include "base/coding.h"
#include "base/log.h"
#include "service/relay/packed.h"

namespace ph::relay {
namespace {

constexpr std::string_view kPrefix = "g/";
constexpr char kVersion = 1;
constexpr char kWantsFar = 1;
constexpr size_t kStreamKey = 32;

std::string entry_key(const link::StreamKey& key, uint64_t attempt) {
  std::string out(kPrefix);
  out += link::store_key(key).substr(2);  // without r/
  put_key(out, attempt);
  return out;
}

std::string encode_entry(uint64_t sequence, link::Range range, int64_t heard) {
  std::string out(1, kVersion);
  put_varint(out, sequence);
  put_varint(out, range.first);
  put_varint(out, range.last - range.first);
  put_varint(out, static_cast<uint64_t>(heard));
  return out;
}

std::string encode_record(const std::string& peer_site, const link::Events& e) {
  std::string out(1, kVersion);
  out.reserve(e.packed.size() + 64);
  out.push_back(e.wants_far ? kWantsFar : 0);
  for (uint64_t n : {e.settled, e.far, e.first, e.last - e.first, e.events}) put_varint(out, n);
  put_sized(out, peer_site);
  out.append(e.packed.view());
  return out;
}

/// `packed` becomes a part of `record`.
bool decode_record(const Slice& record, std::string& peer_site, link::Events& e) {
  Reader in(record.view());
  if (in.fixed<char>() != kVersion) return false;
  e.wants_far = in.fixed<char>() & kWantsFar;
  for (uint64_t* n : {&e.settled, &e.far, &e.first, &e.last, &e.events}) *n = in.varint();
  e.last += e.first;
  peer_site = std::string(in.sized());
  if (!in.ok() || e.last <= e.first) return false;
  e.packed = record.sub(record.size() - in.rest().size());
  return true;
}

}  // namespace

Staging::Staging(std::unique_ptr<spool::SegmentLog> log, uint64_t bytes_max, Intake& intake, port::Loop& loop,
                 port::KeyedStore& store, commit::Committer& committer, Duration stream_ttl)
    : log_(std::move(log)),
      bytes_max_(bytes_max),
      stream_ttl_(stream_ttl),
      intake_(intake),
      loop_(loop),
      store_(store),
      committer_(committer),
      retry_(loop.make_timer()),
      sweep_(loop.make_timer()) {}

Staging::~Staging() {
  *alive_ = false;
}

Result<> Staging::load() {
  Result<> good;
  PH_TRY(store_.scan(kPrefix, [&](ByteView at, ByteView value) {
    Reader in(value);
    Entry entry;
    const char version = in.fixed<char>();
    entry.sequence = in.varint();
    entry.range.first = in.varint();
    entry.range.last = entry.range.first + in.varint();
    entry.heard = in.at_end() ? now_seconds() : static_cast<int64_t>(in.varint());
    entry.since = loop_.now();
    entry.durable = true;
    auto node = NodeId::from_bytes(at.substr(kPrefix.size(), 16));
    if (version != kVersion || !in.ok() || !node || at.size() != kPrefix.size() + kStreamKey + 8) {
      good = fail(link::errors::malformed, "store key " + to_hex(at));
      return false;
    }
    const char* p = at.data() + kPrefix.size() + 16;
    const link::StreamKey key{*node, load_key(p), StreamId{load_key(p + 8)}};
    kept_.insert(entry.sequence);
    streams_[key].emplace(load_key(p + 16), std::move(entry));
    ++stats_.batches;
    return true;
  }));
  PH_TRY(std::move(good));
  log_->release_below(kept_.empty() ? log_->durable_end() : *kept_.begin());
  for (uint64_t sequence : kept_) release_around(sequence + 1);
  sweep_->start(kSweepInterval, [this] { sweep(); });
  return {};
}

int64_t Staging::now_seconds() const {
  return to_unix_ms(loop_.wall_now()) / 1000;
}

/// Each hour: who is connected is noted as heard, and what nobody spoke of for stream_ttl goes.
void Staging::sweep() {
  const int64_t now = now_seconds();
  const auto ttl = std::chrono::duration_cast<std::chrono::seconds>(stream_ttl_).count();
  std::vector<link::StreamKey> silent;
  port::WriteBatch heard;
  for (auto& [key, entries] : streams_) {
    const bool spoken_for = intake_.spoken_for(key);
    int64_t last = 0;
    for (auto& [attempt, entry] : entries) {
      if (spoken_for && entry.durable && !entry.publishing) {
        entry.heard = now;
        heard.put(entry_key(key, attempt), encode_entry(entry.sequence, entry.range, entry.heard));
      }
      last = std::max(last, entry.heard);
    }
    const bool writing = std::ranges::any_of(entries, [](const auto& e) { return !e.second.durable; });
    if (!spoken_for && !writing && now - last > ttl) silent.push_back(key);
  }
  if (!heard.empty()) committer_.request_alone(std::move(heard), [] {});
  for (const link::StreamKey& key : silent) sweep(key, "silent");
  drop_abandoned();
  sweep_->start(kSweepInterval, [this] { sweep(); });
}

void Staging::sweep(const link::StreamKey& key, std::string_view why) {
  const size_t batches = streams_.at(key).size();
  stats_.swept += batches;
  log_warn("staged_batches_swept",
           {{"sender", key.sender.hex()}, {"stream", key.stream.value}, {"batches", batches}, {"why", why}});
  close(key);
}

/// What a sender that is here does not ask about it never will: the stream was closed while it had no connection, or is
/// of before it lost power. That would keep others' room for stream_ttl.
void Staging::drop_abandoned() {
  if (!asked_) return;
  const Instant now = loop_.now();
  look_at_ = now + kLookInterval;
  const Senders asked = asked_();
  std::vector<link::StreamKey> abandoned;
  for (const auto& [key, entries] : streams_) {
    const bool at_rest = std::ranges::all_of(entries, [&](const auto& e) {
      return e.second.durable && !e.second.publishing && now - e.second.since >= kAskedAfter;
    });
    if (at_rest && !intake_.spoken_for(key) && asked.contains({key.sender, key.target})) abandoned.push_back(key);
  }
  for (const link::StreamKey& key : abandoned) sweep(key, "abandoned");
}

bool Staging::stage(const link::StreamKey& key, const std::string& peer_site, const link::Events& events,
                    uint64_t frame_bytes, const std::shared_ptr<IntakeClient>& client) {
  // What is all here already is acknowledged by the intake, which knows.
  if (intake_.has(key, events.first, events.last)) return intake_.take(key, peer_site, events, frame_bytes, client);
  if (!intake_.open_to(key, events, client)) {
    client->consumed(frame_bytes);
    return true;
  }
  if (!for_each_block(events.packed, events.first, events.last, [](uint64_t, uint64_t, const Slice&) {})) return false;
  if (find(key, events.attempt)) return false;
  const bool full = log_->stats().bytes >= bytes_max_;
  if (full && loop_.now() >= look_at_) drop_abandoned();
  if (full || !intake_.room()) {
    intake_.hold_for_retry(key, full ? "staging_full" : "disk_full");
    client->consumed(frame_bytes);
    return true;
  }
  Slice record(encode_record(peer_site, events));
  if (record.size() > limits::kRecordMax) return false;
  Entry& entry = streams_[key][events.attempt];
  entry.range = {events.first, events.last};
  entry.heard = now_seconds();
  entry.since = loop_.now();
  if (in_memory_ + record.size() <= kMemory) {
    entry.record = record;
    in_memory_ += record.size();
  }
  entry.sequence = log_->append(std::move(record), events.events, loop_.wall_now());
  kept_.insert(entry.sequence);
  ++stats_.batches;
  port::WriteBatch batch;
  batch.put(entry_key(key, events.attempt), encode_entry(entry.sequence, entry.range, entry.heard));
  committer_.request(
      {log_.get()}, std::move(batch),
      [this, alive = alive_, key, attempt = events.attempt, frame_bytes, to = client](const Result<>& outcome) {
        if (!*alive) return;
        if (outcome) {
          if (Entry* staged = find(key, attempt)) {
            staged->durable = true;
            ++stats_.staged;
            to->acknowledge(key.stream, {.stream = key.stream, .staged = {attempt}});
          }
        } else {
          log_error("staging_not_durable", {{"error", outcome.error().to_string()}});
          forget(key, attempt);
          intake_.hold_for_retry(key, outcome.error().code.name());
        }
        to->consumed(frame_bytes);
      });
  return true;
}

bool Staging::writing(const link::StreamKey& key) const {
  auto it = streams_.find(key);
  return it != streams_.end() &&
         std::any_of(it->second.begin(), it->second.end(), [](const auto& e) { return !e.second.durable; });
}

std::vector<link::Resumed::Staged> Staging::staged(const link::StreamKey& key) const {
  std::vector<link::Resumed::Staged> out;
  auto it = streams_.find(key);
  if (it == streams_.end()) return out;
  for (const auto& [attempt, entry] : it->second)
    if (entry.durable) out.push_back({attempt, entry.range.first, entry.range.last});
  return out;
}

void Staging::decide(const link::StreamKey& key, const link::Decide& decide) {
  for (uint64_t attempt : decide.publish)
    if (const Entry* entry = find(key, attempt); entry && entry->durable) publish(key, attempt);
  for (uint64_t attempt : decide.discard) discard(key, attempt);
}

Staging::Entry* Staging::find(const link::StreamKey& key, uint64_t attempt) {
  auto stream = streams_.find(key);
  if (stream == streams_.end()) return nullptr;
  auto it = stream->second.find(attempt);
  return it == stream->second.end() ? nullptr : &it->second;
}

void Staging::publish(const link::StreamKey& key, uint64_t attempt) {
  Entry& entry = streams_.at(key).at(attempt);
  // It does not pass an earlier one that found no room and is tried again.
  if (auto waits = again_.lower_bound({key, 0, 0}); waits != again_.end() && std::get<0>(*waits) == key) {
    again_.insert({key, entry.range.first, attempt});
    return;
  }
  if (std::exchange(entry.publishing, true)) return;
  auto record = read(entry);
  std::string peer_site;
  link::Events events;
  events.stream = key.stream;
  if (!record || !decode_record(*record, peer_site, events) || events.first != entry.range.first ||
      events.last != entry.range.last) {
    // Its sender still has the events: without an answer it ends the connection, and RESUMED will not list this one.
    log_error("staged_batch_lost", {{"sender", key.sender.hex()},
                                    {"first", entry.range.first},
                                    {"last", entry.range.last},
                                    {"error", record ? "malformed" : record.error().to_string()}});
    ++stats_.lost;
    discard(key, attempt);
    return;
  }
  port::WriteBatch with;
  with.remove(entry_key(key, attempt));
  intake_.publish(key, peer_site, events, std::move(with), [this, alive = alive_, key, attempt](bool durable) {
    if (*alive) published(key, attempt, durable);
  });
}

void Staging::published(const link::StreamKey& key, uint64_t attempt, bool durable) {
  if (durable) {
    ++stats_.published;
    return forget(key, attempt);
  }
  Entry* entry = find(key, attempt);
  if (!entry) return;
  entry->publishing = false;
  again_.insert({key, entry->range.first, attempt});
  if (!retry_->pending()) retry_->start(kRetryAfter, [this] { retry(); });
}

void Staging::retry() {
  for (const auto& [key, first, attempt] : std::exchange(again_, {}))
    if (find(key, attempt)) publish(key, attempt);
}

void Staging::discard(const link::StreamKey& key, uint64_t attempt) {
  const auto sequence = take_out(key, attempt);
  if (!sequence) return;
  ++stats_.discarded;
  port::WriteBatch batch;
  batch.remove(entry_key(key, attempt));
  committer_.request_alone(std::move(batch), [this, alive = alive_, sequence = *sequence] {
    if (*alive) release(sequence);
  });
}

void Staging::close(const link::StreamKey& key) {
  auto stream = streams_.find(key);
  if (stream == streams_.end()) return;
  std::vector<uint64_t> attempts;
  for (const auto& [attempt, entry] : stream->second) attempts.push_back(attempt);
  for (uint64_t attempt : attempts) discard(key, attempt);
}

Result<Slice> Staging::read(const Entry& entry) {
  if (!entry.record.empty()) return entry.record;
  auto cursor = log_->read_from(entry.sequence);
  PH_ASSIGN(auto record, cursor->next());
  if (!record || record->sequence != entry.sequence || record->damaged)
    return fail(spool::errors::damaged, "record " + std::to_string(entry.sequence) + " of the staging log");
  return std::move(record->block);
}

/// The sequence of its record, for release(); nullopt: there is no such entry.
std::optional<uint64_t> Staging::take_out(const link::StreamKey& key, uint64_t attempt) {
  const Entry* entry = find(key, attempt);
  if (!entry) return std::nullopt;
  const uint64_t sequence = entry->sequence;
  in_memory_ -= entry->record.size();
  --stats_.batches;
  auto stream = streams_.find(key);
  stream->second.erase(attempt);
  if (stream->second.empty()) streams_.erase(stream);
  return sequence;
}

/// The entry is gone from the store, or never got there.
void Staging::forget(const link::StreamKey& key, uint64_t attempt) {
  if (const auto sequence = take_out(key, attempt)) release(*sequence);
}

void Staging::release(uint64_t sequence) {
  kept_.erase(sequence);
  log_->release_below(kept_.empty() ? log_->durable_end() : std::min(*kept_.begin(), log_->durable_end()));
  release_around(sequence);
}

/// What is left of a sender that has gone may wait for days: it keeps its own segment, and not all that came later.
void Staging::release_around(uint64_t sequence) {
  if (log_->stats().segments < 2 || kept_.contains(sequence)) return;
  const auto following = kept_.upper_bound(sequence);
  if (following == kept_.begin()) return;  // release_below() did it
  log_->release_range(*std::prev(following) + 1, following == kept_.end() ? log_->durable_end() : *following);
}

StagingStats Staging::stats() const {
  StagingStats s = stats_;
  s.bytes = log_->stats().bytes;
  return s;
}

}  // namespace ph::relay
