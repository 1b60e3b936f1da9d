#include "service/relay/lsd_upstream.h"

#include <algorithm>

#include "base/limits.h"
#include "base/log.h"
#include "service/relay/lsd_link.h"

namespace ph::relay {
namespace {

constexpr std::string_view kMarkPrefix = "u/lsd/";
constexpr std::string_view kReceiver = "lsd";  // in a source's list of who may hold something: nobody to be asked
constexpr Duration kWatchInterval = 1s;

}  // namespace

LsdUpstream::LsdUpstream(LsdUpstreamOptions options, port::Loop& loop, port::Network& network, port::KeyedStore& store,
                         commit::Committer& committer, std::vector<port::EventSource*> sources)
    : options_(std::move(options)),
      loop_(loop),
      network_(network),
      store_(store),
      committer_(committer),
      sources_(std::move(sources)),
      addresses_(options_.addresses.size()),
      has_more_(sources_.size(), true),
      persisting_(sources_.size(), false),
      persist_again_(sources_.size(), false),
      timer_(loop.make_timer()),
      watch_timer_(loop.make_timer()) {
  for (port::EventSource* s : sources_) {
    const auto& json = options_.json_routes;
    forms_.push_back({options_.gzip, std::find(json.begin(), json.end(), s->route()) != json.end()});
  }
  for (size_t a = 0; a < addresses_.size(); ++a)
    for (size_t i = 0; i < options_.connections; ++i) addresses_[a].links.push_back(std::make_unique<Link>(*this, a));
}

LsdUpstream::~LsdUpstream() {
  *alive_ = false;
  for (port::EventSource* s : sources_) {
    s->on_ready([] {});
    s->on_closed([](StreamId) {});
  }
}

void LsdUpstream::start() {
  stopped_ = false;
  auto found = store_.get(std::string(kMarkPrefix) + options_.name);
  // What cannot be read is taken for an unclean end: more may be counted as maybe_duplicate then.
  bool unclean = !found || (*found && (*found)->size() >= 2 && (**found)[1] != 0);
  for (size_t i = 0; i < sources_.size(); ++i) {
    for (const port::OpenStream& open : sources_[i]->open_streams()) {
      if (sources_[i]->wants_far()) sources_[i]->far_advanced(open.stream, open.settled);
      if (!unclean || open.receivers.empty()) continue;
      auto stream = std::make_unique<Stream>();
      stream->id = open.stream;
      stream->source = i;
      stream->uncertain_bytes = options_.window_bytes;
      stream->uncertain_until = open.assigned;
      streams_[{i, open.stream}] = std::move(stream);
    }
    sources_[i]->on_ready([this, i] {
      has_more_[i] = true;
      soon();
    });
    sources_[i]->on_closed([this, i](StreamId id) {
      auto it = streams_.find({i, id});
      if (it != streams_.end() && it->second->waiting.empty() && !it->second->in_flight) streams_.erase(it);
    });
  }
  watch();
  soon();
}

void LsdUpstream::stop() {
  stopped_ = true;
  timer_->cancel();
  if (drained() && marked_) mark(false);
}

bool LsdUpstream::drained() const {
  for (const Address& a : addresses_)
    for (const auto& l : a.links)
      if (l->flight()) return false;
  return true;
}

void LsdUpstream::mark(bool open) {
  marking_ = open;
  marked_ = false;
  port::WriteBatch entries;
  entries.put(std::string(kMarkPrefix) + options_.name, std::string("\x01", 1) + (open ? '\x01' : '\0'));
  committer_.request_alone(std::move(entries), [this, alive = alive_] {
    if (!*alive || !marking_) return;
    marked_ = true;
    soon();
  });
}

void LsdUpstream::soon() {
  if (pump_posted_) return;
  pump_posted_ = true;
  loop_.post([this, alive = alive_] {
    if (!*alive) return;
    pump_posted_ = false;
    pump();
  });
}

void LsdUpstream::pump() {
  if (stopped_) {
    if (marked_ && drained()) mark(false);
    return;
  }
  bool more = pull();
  dispatch();
  if (more) soon();
  rearm();
}

// --- from the sources

/// A turn moves a bounded amount, so that the loop gets to its sockets between. Whether there is more.
bool LsdUpstream::pull() {
  constexpr int kBatchesPerTurn = 16;
  for (int moved = 0; moved < kBatchesPerTurn;) {
    if (held_bytes_ >= options_.window_bytes) return false;
    size_t tried = 0;
    for (; tried < sources_.size(); ++tried) {
      size_t i = next_source_++ % sources_.size();
      if (!has_more_[i]) continue;
      auto batch = sources_[i]->next(kBatchBytes);
      if (!batch) {
        has_more_[i] = false;
        continue;
      }
      auto& stream = streams_[{i, batch->stream}];
      if (!stream) {
        stream = std::make_unique<Stream>();
        stream->id = batch->stream;
        stream->source = i;
      }
      take(*stream, {std::move(*batch), false});
      ++moved;
      break;
    }
    if (tried == sources_.size()) return false;
  }
  return true;
}

void LsdUpstream::take(Stream& stream, Part part) {
  held_bytes_ += part.batch.packed.size();
  held_events_ += part.batch.events;
  if (stream.uncertain_bytes > 0 && part.batch.first < stream.uncertain_until) {
    stream.uncertain_bytes -= std::min<uint64_t>(stream.uncertain_bytes, part.batch.packed.size());
    part.counted = true;
    count_again(stream, part.batch.events);
  } else {
    stream.uncertain_bytes = 0;
  }
  stream.waiting.push_back(std::move(part));
  list(stream);
}

/// Before the first thing of a stream leaves, its source has it on disk that something may have.
void LsdUpstream::ask_to_use() {
  if (!marking_) mark(true);
  for (Stream* s : ready_) {
    if (std::exchange(s->asked, true)) continue;
    sources_[s->source]->will_use(s->id, std::string(kReceiver),
                                  [this, alive = alive_, key = std::pair(s->source, s->id)] {
                                    if (!*alive) return;
                                    auto it = streams_.find(key);
                                    if (it == streams_.end()) return;
                                    it->second->usable = true;
                                    ready(*it->second);
                                  });
  }
}

/// The stream waits until it is on disk that so many of its events may come to be at a receiver twice.
void LsdUpstream::count_again(Stream& stream, uint64_t events) {
  ++stream.counting;
  sources_[stream.source]->rerouted_unasked(events, [this, alive = alive_, stream = &stream] {
    if (!*alive) return;
    --stream->counting;
    ready(*stream);
  });
}

void LsdUpstream::list(Stream& stream) {
  if (stream.listed || stream.waiting.empty() || stream.in_flight) return;
  stream.listed = true;
  ready_.push_back(&stream);
}

void LsdUpstream::ready(Stream& stream) {
  list(stream);
  soon();
}

bool LsdUpstream::eligible(const Stream& stream, Instant now) const {
  return stream.usable && stream.counting == 0 && stream.not_before <= now;
}

// --- to the receivers

/// One that has nothing in flight, at the address with the least in flight for its weight.
LsdUpstream::Link* LsdUpstream::free_link() {
  Instant now = loop_.now();
  Link* best = nullptr;
  double least = 0;
  for (size_t n = 0; n < addresses_.size(); ++n) {
    size_t a = (next_address_ + n) % addresses_.size();
    Address& address = addresses_[a];
    if (address.not_before > now) continue;
    Link* free = nullptr;
    size_t busy = 0;
    for (const auto& l : address.links) {
      busy += l->flight() != nullptr;
      if (!free && l->free()) free = l.get();
    }
    // One that answered errors is asked by one request at a time until it succeeds.
    if (!free || (busy > 0 && address.refusals >= kRefusalsInRow)) continue;
    double share = static_cast<double>(busy + 1) / std::max<uint32_t>(1, options_.addresses[a].weight);
    if (best && share >= least) continue;
    best = free;
    least = share;
  }
  ++next_address_;
  return best;
}

/// Every address keeps one connection, so that its state is known; more are opened while requests wait for one.
void LsdUpstream::open_links(bool wanted) {
  Instant now = loop_.now();
  for (Address& address : addresses_) {
    if (address.not_before > now) continue;
    bool open = false, opening = false;
    Link* closed = nullptr;
    for (const auto& l : address.links) {
      open |= l->is_open();
      opening |= l->opening();
      if (!closed && !l->is_open() && !l->opening()) closed = l.get();
    }
    if (closed && !opening && (!open || (wanted && address.failures == 0 && address.refusals == 0))) closed->open();
  }
}

void LsdUpstream::dispatch() {
  bool waits = false;
  while (!ready_.empty()) {
    Link* link = free_link();
    if (!link) {
      waits = true;
      break;
    }
    ask_to_use();
    Instant now = loop_.now();
    if (!marked_ || std::none_of(ready_.begin(), ready_.end(), [&](const Stream* s) { return eligible(*s, now); }))
      break;
    auto flight = load();
    if (!flight) continue;
    link->send(std::move(flight));
  }
  open_links(waits);
}

/// The next request: streams in turn, each with all that it has, up to the size of a request. Null: there was nothing
/// in them to send.
std::unique_ptr<LsdUpstream::Flight> LsdUpstream::load() {
  auto flight = std::make_unique<Flight>();
  Instant now = loop_.now();
  for (size_t n = ready_.size(); n > 0 && flight->bytes < kRequestBytes; --n) {
    Stream& stream = *ready_.front();
    ready_.pop_front();
    if (!eligible(stream, now) || (stream.alone && !flight->taken.empty())) {
      ready_.push_back(&stream);
      continue;
    }
    stream.listed = false;
    add_to(*flight, stream);
    if (stream.alone) break;
  }
  if (!flight->request.empty()) return flight;
  succeeded(*flight);
  return nullptr;
}

void LsdUpstream::add_to(Flight& flight, Stream& stream) {
  auto& [owner, parts] = flight.taken.emplace_back(&stream, std::deque<Part>());
  owner->in_flight = true;
  std::vector<LsdUnsendable> unsendable;
  while (!stream.waiting.empty()) {
    Part& part = stream.waiting.front();
    size_t size = part.batch.packed.size();
    if (flight.bytes > 0 && flight.bytes + size > kRequestBytes) break;
    if (!flight.request.takes(size)) break;
    flight.request.add(part.batch, forms_[stream.source], unsendable);
    for (LsdUnsendable& u : unsendable) {
      part.batch.events -= std::min(part.batch.events, u.events);
      held_events_ -= std::min(held_events_, u.events);
      sources_[stream.source]->rejected(stream.id, u.first, u.last, std::move(u.block), u.reason);
    }
    unsendable.clear();
    flight.bytes += size;
    flight.events += part.batch.events;
    parts.push_back(std::move(part));
    stream.waiting.pop_front();
  }
}

void LsdUpstream::succeeded(Flight& flight) {
  for (auto& [stream, parts] : flight.taken) {
    port::EventSource& source = *sources_[stream->source];
    for (const Part& part : parts) {
      held_bytes_ -= part.batch.packed.size();
      held_events_ -= part.batch.events;
      source.advanced(stream->id, part.batch.last, part.batch.events, 0);
      if (source.wants_far()) source.far_advanced(stream->id, part.batch.last);
    }
    stream->in_flight = stream->alone = false;
    stream->failures = 0;
    stream->not_before = {};
    list(*stream);
    persist(stream->source);
  }
  soon();
}

/// All of it goes back to where it came from, in order, and is counted before it may be sent again.
void LsdUpstream::failed(Flight& flight, bool refused) {
  for (auto& [owner, parts] : flight.taken) {
    Stream* stream = owner;
    uint64_t again = 0;
    for (auto part = parts.rbegin(); part != parts.rend(); ++part) {
      if (!std::exchange(part->counted, true)) again += part->batch.events;
      stream->waiting.push_front(std::move(*part));
    }
    stream->in_flight = false;
    if (refused) {
      stream->alone = true;
      stream->not_before = loop_.now() + back_off(++stream->failures, limits::kProbeMax);
    }
    if (again > 0) count_again(*stream, again);
    list(*stream);
  }
  soon();
}

void LsdUpstream::address_failed(size_t index, std::string reason) {
  Address& address = addresses_[index];
  ++address.failures;
  ++address.failed;
  address.not_before = std::max(address.not_before, loop_.now() + back_off(address.failures, limits::kProbeMax));
  if (!stopped_ && (address.failures == 1 || reason != address.last_error))
    log_warn(
        "lsd_receiver_failed",
        {{"upstream", options_.name}, {"address", options_.addresses[index].endpoint.to_string()}, {"reason", reason}});
  address.last_error = std::move(reason);
  soon();
}

Duration LsdUpstream::back_off(unsigned failures, Duration most) {
  Duration wait = limits::kProbeMin;
  for (unsigned i = 1; i < failures && wait < most; ++i) wait *= 2;
  return loop_.random().jitter(std::min(wait, most));
}

/// The cursor and its counters to disk now; what comes meanwhile goes with the next write.
void LsdUpstream::persist(size_t source) {
  if (persisting_[source]) {
    persist_again_[source] = true;
    return;
  }
  persisting_[source] = true;
  sources_[source]->persist_now([this, alive = alive_, source] {
    if (!*alive) return;
    persisting_[source] = false;
    if (!persist_again_[source]) return;
    persist_again_[source] = false;
    persist(source);
  });
}

// --- time

void LsdUpstream::watch() {
  Instant now = loop_.now();
  for (Address& a : addresses_)
    for (auto& l : a.links) l->check_time(now);
  watch_timer_->start(kWatchInterval, [this] { watch(); });
}

/// Wakes for the earliest back-off that ends.
void LsdUpstream::rearm() {
  Instant now = loop_.now(), due = Instant::max();
  for (const Address& a : addresses_)
    if (a.not_before > now) due = std::min(due, a.not_before);
  for (const Stream* s : ready_)
    if (s->not_before > now) due = std::min(due, s->not_before);
  if (due == Instant::max()) return timer_->cancel();
  timer_->start(due - now, [this] { pump(); });
}

UpstreamStatus LsdUpstream::status() const {
  UpstreamStatus s;
  s.name = options_.name;
  s.unacked_events = held_events_;
  s.unacked_bytes = held_bytes_;
  for (size_t i = 0; i < addresses_.size(); ++i) {
    const Address& a = addresses_[i];
    link::ReceiverStatus& r = s.receivers.emplace_back();
    r.address = options_.addresses[i].endpoint.to_string();
    for (const auto& l : a.links) {
      if (l->is_open())
        r.state = link::ReceiverState::ready;
      else if (l->opening() && r.state == link::ReceiverState::idle)
        r.state = link::ReceiverState::connecting;
      if (!l->flight()) continue;
      r.in_flight_batches += l->flight()->request.events();
      r.in_flight_bytes += l->flight()->bytes;
    }
    r.connects = a.connects;
    r.failures = a.failed;
    r.last_error = a.last_error;
    s.peers.emplace_back();
  }
  return s;
}

}  // namespace ph::relay
